// What becomes of NCCL's failures: on the stand-in, where they can be planted.
#include "compute/cuda/nccl_communicator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/mpi_communicator.hpp"
#include "compute/cuda/buffer.hpp"
#include "compute/cuda/training.hpp"
#include "standin.hpp"

namespace convnet {
namespace {

using testing::HasSubstr;

class NcclFailures : public testing::Test {
 protected:
  static constexpr int kLong = 60;  // seconds, for what is not to be a matter of time

  // The error that training on all ranks ends with.
  Error error_of_training(int comm_timeout) {
    try {
      train({.comm_timeout = comm_timeout}, {}, world_);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "expected an error";
    return {ExitCode::kOk, ""};
  }

  // Objects that training left behind. An aborted communicator is gone too.
  static long left_behind() {
    long count = 0;
    for (const auto& [kind, number] : standin::live_objects()) {
      count += number;
    }
    return count;
  }

  void TearDown() override {
    EXPECT_EQ(left_behind(), left_before_);
    world_.barrier();
  }

  MpiCommunicator world_;
  long left_before_ = left_behind();
};

TEST_F(NcclFailures, LeaveNothingBehindWhereThereAreNone) {
  train({.comm_timeout = kLong}, {}, world_);
}

TEST_F(NcclFailures, SayWhoIsMissingWhereAndWhatToSetIfTheRanksDoNotFindOneAnother) {
  standin::stall("ncclCommInitRankConfig");
  const Error error = error_of_training(1);
  standin::end_stall("ncclCommInitRankConfig");
  EXPECT_EQ(error.code(), ExitCode::kUnavailable);
  EXPECT_THAT(error.what(), HasSubstr("NCCL did not connect ranks 0 to " + std::to_string(world_.size() - 1) +
                                      " within 1 s: rank " + std::to_string(world_.rank()) + " still waits"));
  for (const char* word : {"Interfaces here: ", "NCCL_SOCKET_IFNAME is not set", "NCCL_DEBUG is not set"}) {
    EXPECT_THAT(error.what(), HasSubstr(word));
  }
}

TEST_F(NcclFailures, SayThatASumWaitedInVain) {
  standin::stall("ncclAllReduce");
  const Error error = error_of_training(2);
  standin::end_stall("ncclAllReduce");
  EXPECT_EQ(error.code(), ExitCode::kUnavailable);
  EXPECT_THAT(error.what(),
              HasSubstr("rank " + std::to_string(world_.rank()) + " has waited 2 s in NCCL's all-reduce"));
}

// Else a launch would block, where no deadline is looked at (the stand-in ends the program then).
TEST_F(NcclFailures, AreNoticedBeforeTheQueueOfTheGpuIsFull) {
  standin::stall("ncclAllReduce");
  try {
    train({.graph = CudaGraph::kOff, .comm_timeout = 2}, {.epochs = 1, .rows = 300}, world_);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("has waited 2 s in NCCL's all-reduce"));
  }
  standin::end_stall("ncclAllReduce");
}

// Seen by whoever waits: here for the last step's results, after a graph's capture has called NCCL for the
// fourth time.
TEST_F(NcclFailures, PassOnWhatNcclReportsWhileResultsAreAwaited) {
  setenv("CONVNET_STANDIN_ASYNC_ERROR", "4", 1);
  const Error error = error_of_training(kLong);
  unsetenv("CONVNET_STANDIN_ASYNC_ERROR");
  EXPECT_EQ(error.code(), ExitCode::kInternal);
  EXPECT_THAT(error.what(), HasSubstr("NCCL failed on the way: "));
  EXPECT_THAT(error.what(), HasSubstr(ncclGetErrorString(ncclRemoteError)));
}

TEST_F(NcclFailures, GiveUpTheCommunicatorIfItCannotBeMadeUseful) {
  for (const char* call : {"ncclCommInitRankConfig", "ncclCommRegister"}) {
    standin::fail(call, 1);
    EXPECT_THAT(error_of_training(kLong).what(), HasSubstr(std::string(call) + " failed: "));
    world_.barrier();
  }
}

}  // namespace
}  // namespace convnet
