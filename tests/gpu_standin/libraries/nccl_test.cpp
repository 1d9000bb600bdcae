#include <gtest/gtest.h>
#include <mpi.h>
#include <nccl.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "libraries/device_array.hpp"
#include "standin.hpp"

// The stand-in's NCCL among several ranks, started by mpiexec.

namespace standin::libraries {
namespace {

// As many devices as the largest number of ranks, before the first call asks.
const int kEnvironmentIsSet = setenv("CONVNET_STANDIN_DEVICES", "4", 1);

int rank() {
  int result = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &result);
  return result;
}

int world_size() {
  int result = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &result);
  return result;
}

ncclUniqueId shared_id() {
  ncclUniqueId id{};
  if (rank() == 0) {
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  }
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  return id;
}

ncclResult_t begin_nonblocking(ncclComm_t* communicator) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return ncclCommInitRankConfig(communicator, world_size(), shared_id(), rank(), &config);
}

ncclResult_t state_of(ncclComm_t communicator) {
  ncclResult_t state = ncclInternalError;
  EXPECT_EQ(ncclCommGetAsyncError(communicator, &state), ncclSuccess);
  return state;
}

ncclResult_t wait_for(ncclComm_t communicator) {
  ncclResult_t state = state_of(communicator);
  while (state == ncclInProgress) {
    state = state_of(communicator);
  }
  return state;
}

class Nccl : public testing::Test {
 protected:
  Nccl() { EXPECT_EQ(cudaSetDevice(rank()), cudaSuccess); }

  // Sums `values` over all ranks, in place.
  template <class Value>
  std::vector<Value> sum(ncclComm_t communicator, const std::vector<Value>& values, ncclDataType_t type) {
    const DeviceArray<Value> memory(stream_, values);
    const ncclResult_t result =
        ncclAllReduce(memory.get(), memory.get(), values.size(), type, ncclSum, communicator, stream_);
    EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress);
    EXPECT_EQ(wait_for(communicator), ncclSuccess);
    return memory.values();
  }

  Stream stream_;
};

TEST_F(Nccl, SumsExactlyWhatIsExact) {
  ncclComm_t communicator = nullptr;
  ASSERT_EQ(ncclCommInitRank(&communicator, world_size(), shared_id(), rank()), ncclSuccess);
  const int rank_sum = world_size() * (world_size() + 1) / 2;  // of rank + 1
  std::vector<float> mine;
  std::vector<double> expected;
  for (int i = 0; i < 1000; ++i) {
    mine.push_back(static_cast<float>((i - 500) * (rank() + 1)));
    expected.push_back((i - 500) * rank_sum);
  }
  const std::vector<double> mine_in_double(mine.begin(), mine.end());
  expect_near(sum(communicator, mine, ncclFloat32), expected, 0.0);
  EXPECT_EQ(sum(communicator, mine_in_double, ncclFloat64), expected);

  const Floats send(stream_, mine);
  const Floats receive(stream_, mine.size());
  ASSERT_EQ(
      ncclAllReduce(send.get(), receive.get(), mine.size(), ncclFloat32, ncclSum, communicator, stream_),
      ncclSuccess);
  expect_near(receive.values(), expected, 0.0);
  EXPECT_EQ(send.values(), mine);
  EXPECT_EQ(ncclCommDestroy(communicator), ncclSuccess);
}

TEST_F(Nccl, GivesAllRanksTheSameBitsAlsoWithoutBlocking) {
  ncclComm_t communicator = nullptr;
  ASSERT_EQ(begin_nonblocking(&communicator), ncclInProgress);
  EXPECT_EQ(state_of(communicator), ncclInProgress);
  EXPECT_EQ(state_of(communicator), ncclInProgress);
  ASSERT_EQ(wait_for(communicator), ncclSuccess);
  int count = 0;
  int user_rank = -1;
  EXPECT_EQ(ncclCommCount(communicator, &count), ncclSuccess);
  EXPECT_EQ(ncclCommUserRank(communicator, &user_rank), ncclSuccess);
  EXPECT_EQ(count, world_size());
  EXPECT_EQ(user_rank, rank());
  for (unsigned int call = 0; call < 7; ++call) {
    const std::vector<float> mine = random_values(5000, 10 * call + static_cast<unsigned int>(rank()));
    const std::vector<float> sums = sum(communicator, mine, ncclFloat32);
    std::vector<float> of_rank_0 = sums;
    MPI_Bcast(of_rank_0.data(), static_cast<int>(of_rank_0.size()), MPI_FLOAT, 0, MPI_COMM_WORLD);
    EXPECT_EQ(sums, of_rank_0);
    EXPECT_NE(sums, mine);
  }
  EXPECT_EQ(ncclCommFinalize(communicator), ncclInProgress);
  EXPECT_EQ(wait_for(communicator), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(communicator), ncclSuccess);
}

TEST_F(Nccl, RefusesTwoRanksOnOneDevice) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ncclComm_t communicator = nullptr;
  EXPECT_EQ(ncclCommInitRank(&communicator, world_size(), shared_id(), rank()), ncclInvalidUsage);
  EXPECT_EQ(communicator, nullptr);
  ASSERT_EQ(begin_nonblocking(&communicator), ncclInProgress);
  EXPECT_EQ(wait_for(communicator), ncclInvalidUsage);
  EXPECT_EQ(std::string(ncclGetLastError(communicator)).substr(0, 22), "Duplicate GPU detected");
  EXPECT_EQ(ncclCommAbort(communicator), ncclSuccess);
}

TEST_F(Nccl, StaysInProgressWhileARankDoesNotCome) {
  const ncclUniqueId id = shared_id();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t communicator = nullptr;
  if (rank() != 0) {
    ASSERT_EQ(ncclCommInitRankConfig(&communicator, world_size(), id, rank(), &config), ncclInProgress);
    for (int poll = 0; poll < 1000; ++poll) {
      ASSERT_EQ(state_of(communicator), ncclInProgress);
    }
    const int polled = 1;
    MPI_Send(&polled, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
  } else {
    for (int other = 1; other < world_size(); ++other) {
      int polled = 0;
      MPI_Recv(&polled, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    ASSERT_EQ(ncclCommInitRankConfig(&communicator, world_size(), id, rank(), &config), ncclInProgress);
  }
  EXPECT_EQ(wait_for(communicator), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(communicator), ncclSuccess);
}

// Ends all ranks, and so is run on its own: --gtest_also_run_disabled_tests --gtest_filter=*DifferentCounts.
// It has passed if the job prints "ncclAllReduce: rank 0 is at call 1 of 100 elements ..., rank 1 at call 1
// of 101 ...".
TEST_F(Nccl, DISABLED_EndsTheProgramAtDifferentCounts) {
  ncclComm_t communicator = nullptr;
  ASSERT_EQ(ncclCommInitRank(&communicator, world_size(), shared_id(), rank()), ncclSuccess);
  sum(communicator, std::vector<float>(100 + static_cast<std::size_t>(rank())), ncclFloat32);
}

TEST_F(Nccl, LeavesNothingAlive) {
  auto alive = live_objects();
  EXPECT_EQ(alive["ncclComm_t"], 0);
}

}  // namespace
}  // namespace standin::libraries
