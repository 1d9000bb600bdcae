#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "libraries/device_array.hpp"
#include "libraries/nccl_communicator.hpp"
#include "standin.hpp"

// The stand-in's NCCL with one rank and without MPI, so that violations may end a forked process.

namespace standin::libraries {
namespace {

ncclResult_t state_of(ncclComm_t communicator) {
  ncclResult_t state = ncclInternalError;
  EXPECT_EQ(ncclCommGetAsyncError(communicator, &state), ncclSuccess);
  return state;
}

class NcclAlone : public testing::Test {
 protected:
  NcclAlone() { EXPECT_EQ(ncclGetUniqueId(&id_), ncclSuccess); }

  ncclResult_t begin() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclCommInitRankConfig(&communicator_, 1, id_, 0, &config);
  }

  void connect() {
    ASSERT_EQ(begin(), ncclInProgress);
    ASSERT_EQ(state_of(communicator_), ncclInProgress);
    ASSERT_EQ(state_of(communicator_), ncclInProgress);
    ASSERT_EQ(state_of(communicator_), ncclSuccess);
  }

  ncclResult_t reduce(const Floats& from, const Floats& to) {
    return ncclAllReduce(from.get(), to.get(), 3, ncclFloat32, ncclSum, communicator_, stream_);
  }

  Stream stream_;
  ncclUniqueId id_{};
  ncclComm_t communicator_ = nullptr;
  Floats source_{stream_, {1.0F, 2.0F, 3.0F}};
  Floats target_{stream_, 3};
  const std::vector<float> zeros_{0.0F, 0.0F, 0.0F};
};

TEST_F(NcclAlone, OutlivesTheGraphsThatHoldItsOperations) {
  connect();
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(reduce(source_, target_), ncclSuccess);
  cudaGraph_t captured = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &captured), cudaSuccess);
  cudaGraphExec_t graph = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&graph, captured, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(captured), cudaSuccess);
  EXPECT_DEATH(ncclCommDestroy(communicator_), "ncclCommDestroy: a graph lives");
  EXPECT_DEATH(ncclCommAbort(communicator_), "ncclCommAbort: a graph lives");
  EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  EXPECT_EQ(ncclCommDestroy(communicator_), ncclSuccess);
}

TEST_F(NcclAlone, StartsEveryThirdOperationOnlyOnceItIsPolled) {
  connect();
  EXPECT_EQ(reduce(source_, target_), ncclSuccess);
  EXPECT_EQ(reduce(source_, target_), ncclSuccess);
  EXPECT_EQ(target_.values(), source_.values());
  const Floats late(stream_, 3);
  EXPECT_EQ(reduce(source_, late), ncclInProgress);
  EXPECT_EQ(late.values(), zeros_);
  EXPECT_DEATH(reduce(source_, target_),
               "ncclAllReduce on a communicator whose last call is still in progress");
  EXPECT_DEATH(ncclCommDestroy(communicator_), "still in progress");
  EXPECT_EQ(state_of(communicator_), ncclInProgress);
  EXPECT_EQ(state_of(communicator_), ncclSuccess);
  EXPECT_EQ(late.values(), source_.values());
  EXPECT_EQ(reduce(source_, target_), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(communicator_), ncclSuccess);
  EXPECT_DEATH(reduce(source_, target_), "ncclComm_t");
}

TEST_F(NcclAlone, StartsAGroupAtItsEnd) {
  ASSERT_EQ(ncclCommInitRank(&communicator_, 1, id_, 0), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(reduce(source_, target_), ncclSuccess);
  EXPECT_EQ(target_.values(), zeros_);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(target_.values(), source_.values());
  EXPECT_EQ(ncclCommDestroy(communicator_), ncclSuccess);
}

TEST_F(NcclAlone, RefusesWhatItDoesNotKnowAndWhatIsNoDeviceMemory) {
  ASSERT_EQ(ncclCommInitRank(&communicator_, 1, id_, 0), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(source_.get(), target_.get(), 3, ncclFloat32, ncclMax, communicator_, stream_),
            ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(nullptr, target_.get(), 3, ncclFloat32, ncclSum, communicator_, stream_),
            ncclInvalidArgument);
  EXPECT_DEATH(ncclAllReduce(source_.get(), target_.get(), 4, ncclFloat32, ncclSum, communicator_, stream_),
               "sendbuff is not 16 bytes of device memory");
  ncclComm_t other = nullptr;
  EXPECT_EQ(ncclCommInitRank(&other, 1, id_, 1), ncclInvalidArgument);
  EXPECT_DEATH(ncclCommInitRank(&other, 2, id_, 1), "made as rank 1 of 2 by rank 0 of 1");
  ncclConfig_t config{};
  EXPECT_EQ(ncclCommInitRankConfig(&other, 1, id_, 0, &config), ncclInvalidArgument);
  fail("ncclAllReduce", 1);
  EXPECT_EQ(reduce(source_, target_), ncclSystemError);
  EXPECT_EQ(ncclCommDestroy(communicator_), ncclSuccess);
}

TEST_F(NcclAlone, CanBeAbortedWhileInProgressAndThenSumsNothing) {
  ASSERT_EQ(begin(), ncclInProgress);
  EXPECT_EQ(ncclCommAbort(communicator_), ncclSuccess);
  connect();
  EXPECT_EQ(reduce(source_, target_), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(communicator_), ncclSuccess);
  stream_.wait();
  auto alive = live_objects();
  EXPECT_EQ(alive["ncclComm_t"], 0);
}

TEST_F(NcclAlone, StaysInProgressForEverWhereItStalls) {
  const auto stalled = [&] {
    stall("ncclCommInitRankConfig");
    bool is_in_progress = begin() == ncclInProgress;
    for (int poll = 0; poll < 100; ++poll) {
      is_in_progress = is_in_progress && state_of(communicator_) == ncclInProgress;
    }
    std::_Exit(is_in_progress && ncclCommAbort(communicator_) == ncclSuccess ? 0 : 1);
  };
  EXPECT_EXIT(stalled(), testing::ExitedWithCode(0), "");
}

TEST_F(NcclAlone, TellsThePlantedErrorAndVersion) {
  connect();
  setenv("CONVNET_STANDIN_ASYNC_ERROR", "1", 1);
  reduce(source_, target_);
  EXPECT_EQ(state_of(communicator_), ncclRemoteError);
  unsetenv("CONVNET_STANDIN_ASYNC_ERROR");
  EXPECT_EQ(state_of(communicator_), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(communicator_), ncclSuccess);

  int version = 0;
  setenv("CONVNET_STANDIN_NCCL_VERSION", "21903", 1);
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, 21903);
  unsetenv("CONVNET_STANDIN_NCCL_VERSION");
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

TEST_F(NcclAlone, RegistersItsOwnMemory) {
  ASSERT_EQ(ncclCommInitRank(&communicator_, 1, id_, 0), ncclSuccess);
  void* memory = nullptr;
  void* handle = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 1000), ncclSuccess);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0U);
  ASSERT_EQ(ncclCommRegister(communicator_, memory, 1000, &handle), ncclSuccess);
  EXPECT_EQ(ncclCommDeregister(communicator_, handle), ncclSuccess);
  EXPECT_DEATH(ncclCommDeregister(communicator_, handle), "ncclCommRegister");
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(communicator_), ncclSuccess);
}

TEST(NcclDifference, NamesTheRanksAndTheirCounts) {
  const AllReduce usual{7, 100, ncclFloat32, ncclSum};
  EXPECT_EQ(difference({usual, usual, usual}), "");
  AllReduce other = usual;
  other.count = 99;
  EXPECT_EQ(
      difference({usual, usual, other}),
      "ncclAllReduce: rank 0 is at call 7 of 100 elements of type 7, operation 0, rank 2 at call 7 of 99 "
      "elements of type 7, operation 0");
  other = usual;
  other.is_captured = true;
  EXPECT_NE(difference({usual, other}), "");
  other = usual;
  other.call = 8;
  EXPECT_NE(difference({usual, other}), "");
}

}  // namespace
}  // namespace standin::libraries
