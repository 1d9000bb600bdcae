// The CUDA back end's sums over ranks: by NCCL or through the host, in one piece or in several, captured or
// not.
#include <gtest/gtest.h>

#include "comm/mpi_communicator.hpp"
#include "compute/backend_test.hpp"
#include "compute/cuda/training.hpp"
#include "compute/tolerance.hpp"
#include "convnet/error.hpp"

namespace convnet {
namespace {

class CudaRanks : public testing::Test {
 protected:
  void SetUp() override { skip_unless_available(cuda_backend("any", {}).unavailable); }

  MpiCommunicator world_;
};

TEST_F(CudaRanks, GiveTheSameBitsWithAndWithoutAGraph) {
  for (Communicator* batch_norm :
       {static_cast<Communicator*>(nullptr), static_cast<Communicator*>(&world_)}) {
    for (const int buckets : {1, 2, 3}) {
      SCOPED_TRACE(buckets);
      const CudaOptions queued{.deterministic = true, .graph = CudaGraph::kOff, .buckets = buckets};
      const CudaOptions captured{.deterministic = true, .buckets = buckets};
      EXPECT_EQ(train(captured, {}, world_, batch_norm).state, train(queued, {}, world_, batch_norm).state);
    }
  }
}

TEST_F(CudaRanks, GiveTheSameBitsHoweverManyStepsALaunchHas) {
  for (Communicator* batch_norm :
       {static_cast<Communicator*>(nullptr), static_cast<Communicator*>(&world_)}) {
    for (const std::size_t uneven : {std::size_t{0}, std::size_t{1}}) {
      const Training training{.epochs = 6, .uneven = uneven, .asks_after = 5};
      const TrainingResult one_by_one = train({.deterministic = true}, training, world_, batch_norm);
      for (const int steps : {2, 3, 16}) {
        const TrainingResult together =
            train({.deterministic = true, .steps_per_launch = steps}, training, world_, batch_norm);
        EXPECT_EQ(together.state, one_by_one.state) << steps;
        EXPECT_EQ(together.losses, one_by_one.losses) << steps;
      }
    }
  }
}

// The last batch has one sample fewer on rank 0: none of its steps may be captured on some ranks alone.
TEST_F(CudaRanks, GiveTheSameBitsWithAGraphWhereRanksHaveDifferentNumbersOfSamples) {
  for (const std::size_t rows : {std::size_t{17}, std::size_t{15}}) {
    const Training training{.epochs = 4, .rows = rows, .uneven = 1};
    EXPECT_EQ(train({.deterministic = true}, training, world_).state,
              train({.deterministic = true, .graph = CudaGraph::kOff}, training, world_).state);
  }
}

// Where a bucket ends may change the order in which more than two ranks are added up.
TEST_F(CudaRanks, GiveTheSameSumsInAnyNumberOfBuckets) {
  const Training one_step{.epochs = 1, .rows = 5};
  const ModelState in_one = train({.deterministic = true}, one_step, world_).state;
  for (const int buckets : {2, 3}) {
    const ModelState in_several = train({.deterministic = true, .buckets = buckets}, one_step, world_).state;
    EXPECT_TRUE(all_within(in_several.parameters,
                           judge::Doubles(in_one.parameters.begin(), in_one.parameters.end()),
                           tolerance(world_.size(), 2.0)));
    if (world_.size() <= 2) {
      EXPECT_EQ(train({.deterministic = true, .buckets = buckets}, {}, world_).state,
                train({.deterministic = true}, {}, world_).state);
    }
  }
}

TEST_F(CudaRanks, EndWithTheSameParametersOnAllRanks) {
  const ModelState state = train({.buckets = 2}, {}, world_).state;
  Floats of_first = state.parameters;
  world_.broadcast(std::as_writable_bytes(std::span(of_first)), 0);
  EXPECT_EQ(state.parameters, of_first);
}

TEST_F(CudaRanks, SumThroughTheHostWhatNcclSums) {
  const Training training{.epochs = 1, .rows = 5};  // one step: nothing grows
  const ModelState by_nccl = train({.deterministic = true}, training, world_).state;
  for (const int buckets : {1, 3}) {
    const ModelState by_mpi =
        train({.deterministic = true, .comm = CommLibrary::kMpi, .buckets = buckets}, training, world_).state;
    EXPECT_TRUE(all_within(by_mpi.parameters,
                           judge::Doubles(by_nccl.parameters.begin(), by_nccl.parameters.end()),
                           tolerance(world_.size(), 2.0)));
  }
}

TEST_F(CudaRanks, SumTheStatisticsOfBatchNormThroughTheHostToo) {
  const Training one_step{.epochs = 1, .rows = 5};
  const ModelState by_nccl = train({.deterministic = true}, one_step, world_, &world_).state;
  const ModelState by_mpi =
      train({.deterministic = true, .comm = CommLibrary::kMpi}, one_step, world_, &world_).state;
  EXPECT_TRUE(all_within(by_mpi.buffers, judge::Doubles(by_nccl.buffers.begin(), by_nccl.buffers.end()),
                         tolerance(world_.size(), 2.0)));
}

TEST_F(CudaRanks, SumAlsoWhatSomebodyHasReadBefore) {
  const Network network = small_network();
  const Dataset dataset = synthetic_dataset(network, 5, 1, 1);
  const std::vector<std::int32_t> rows{0, 1, 2, 3, 4};
  const auto replica = cuda_backend("any", {.buckets = 2}).make_replica({.network = network, .max_batch = 5});
  replica->load(dataset);
  replica->write_state(random_state(network, 1));
  replica->forward_backward(rows, 1.0F);
  const Floats own = replica->read_gradients();
  replica->all_reduce_gradients(world_);
  judge::Doubles expected;  // all ranks have the same rows
  for (const float gradient : own) {
    expected.push_back(static_cast<double>(gradient) * world_.size());
  }
  EXPECT_TRUE(all_within(replica->read_gradients(), expected, tolerances(world_.size(), absolute(own))));
}

TEST_F(CudaRanks, GiveTheSumOfTheLossesOfAllRanks) {
  const StepResult last = train({}, {}, world_).last;
  double sum = last.local_loss_sum;
  world_.all_reduce_sum(std::span(&sum, 1));
  EXPECT_NEAR(last.loss_sum, sum, tolerance(world_.size(), sum));
}

TEST_F(CudaRanks, RefuseAGraphOfSumsThroughTheHost) {
  if (world_.size() == 1) {
    GTEST_SKIP() << "one rank sums nothing";
  }
  try {
    train({.graph = CudaGraph::kOn, .comm = CommLibrary::kMpi}, {}, world_);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
  }
}

TEST_F(CudaRanks, RefuseASecondCommunicator) {
  if (world_.size() == 1) {
    GTEST_SKIP() << "one rank sums nothing";
  }
  MpiCommunicator other;
  try {
    train({}, {}, world_, &other);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInternal);
  }
}

}  // namespace
}  // namespace convnet
