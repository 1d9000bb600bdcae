// What a step of training asks of CUDA and its libraries once it has warmed up: counted by the stand-in, call by call.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "comm/mpi_communicator.hpp"
#include "compute/cuda/step_pace.hpp"
#include "compute/cuda/training.hpp"
#include "standin.hpp"

namespace convnet {
namespace {

using Counts = std::map<std::string, long>;

constexpr int kSteps = 64;  // that are counted
constexpr int kBatch = 5;

Counts difference(const Counts& after, const Counts& before) {
  Counts result;
  for (const auto& [name, count] : after) {
    const auto found = before.find(name);
    const long more = count - (found == before.end() ? 0 : found->second);
    if (more != 0) {
      result[name] = more;
    }
  }
  return result;
}

Counts times(Counts counts, long factor) {
  for (auto& [name, count] : counts) {
    count *= factor;
  }
  return counts;
}

Counts operator+(Counts a, const Counts& b) {
  for (const auto& [name, count] : b) {
    a[name] += count;
  }
  return a;
}

// How a rank waits for others: it looks whether the event has come, and whether NCCL has failed.
long remove_questions(Counts& calls) {
  return static_cast<long>(calls.erase("cudaEventQuery") + calls.erase("ncclCommGetAsyncError"));
}

struct Mode {
  CudaOptions options;
  UpdateRule rule{.learning_rate = 0.01};
  bool skip_nonfinite = false;
};

// A replica in the middle of an epoch of full batches.
class SteadyRun {
 public:
  SteadyRun(const Mode& mode, MpiCommunicator& world)
      : rule_(mode.rule),
        world_(world),
        replica_(cuda_backend("any", mode.options)
                     .make_replica({.network = network_,
                                    .max_batch = kBatch,
                                    .skip_nonfinite = mode.skip_nonfinite})),
        dataset_(synthetic_dataset(network_, std::int64_t{4} * kBatch * world.size(), 3, 1)),
        rows_(kBatch * std::size_t{4}) {
    std::iota(rows_.begin(), rows_.end(), static_cast<std::int32_t>(rows_.size()) * world.rank());
    replica_->load(dataset_);
    replica_->write_state(random_state(network_, 1));
    replica_->announce_rows(rows_);
    for (int i = 0; i < 4 * mode.options.steps_per_launch; ++i) {
      step();
    }
    replica_->result();
  }

  void step() {
    const std::size_t first = static_cast<std::size_t>(rule_.step - 1) % 4 * kBatch;
    replica_->forward_backward(std::span(rows_).subspan(first, kBatch),
                               1.0F / static_cast<float>(kBatch * world_.size()));
    replica_->all_reduce_gradients(world_);
    replica_->update(rule_);
    ++rule_.step;
  }

  Counts calls_of_steps() {
    const Counts before = standin::calls();
    for (int i = 0; i < kSteps; ++i) {
      step();
    }
    return difference(standin::calls(), before);
  }

  Counts work_of_steps() {
    const Counts before = standin::work();
    for (int i = 0; i < kSteps; ++i) {
      step();
    }
    return difference(standin::work(), before);
  }

 private:
  Network network_ = small_network();
  UpdateRule rule_;
  MpiCommunicator& world_;
  std::unique_ptr<Replica> replica_;
  Dataset dataset_;
  std::vector<std::int32_t> rows_;
};

class StepLaunches : public testing::Test {
 protected:
  bool is_alone() const { return world_.size() == 1; }

  // Calls in which the host waits for the device, by way of an event of some launches ago.
  Counts pace(long launches) const {
    const long turns = launches / static_cast<long>(cuda::StepPace::kStride);
    Counts calls{{"cudaEventRecord", turns}};
    if (is_alone()) {
      calls["cudaEventSynchronize"] = turns;
    }
    return calls;
  }

  void expect_work(const Mode& mode, Counts of_step) {
    if (!is_alone()) {
      of_step["ncclAllReduce"] = 1;
    }
    for (const CudaGraph graph : {CudaGraph::kOff, CudaGraph::kOn}) {
      Mode variant = mode;
      variant.options.graph = graph;
      EXPECT_EQ(SteadyRun(variant, world_).work_of_steps(), times(of_step, kSteps));
    }
  }

  MpiCommunicator world_;
};

// That this is all means: it does not wait, allocate, copy, or make anything.
TEST_F(StepLaunches, AreOneOfAGraphAndOneOfWhatItNeedsToKnow) {
  for (const Kernels kernels : {Kernels::kFused, Kernels::kCudnn}) {
    SteadyRun run({.options = {.kernels = kernels, .graph = CudaGraph::kOn}}, world_);
    Counts calls = run.calls_of_steps();
    remove_questions(calls);
    EXPECT_EQ(calls, times({{"cudaGraphLaunch", 1}, {"cudaLaunchKernel", 1}}, kSteps) + pace(kSteps));
  }
}

TEST_F(StepLaunches, AreOneOfAGraphForAsManyStepsAsAskedFor) {
  for (const int steps : {2, 8, 32, 64}) {
    SteadyRun run({.options = {.steps_per_launch = steps}}, world_);
    Counts calls = run.calls_of_steps();
    remove_questions(calls);
    const long launches = kSteps / steps;
    Counts expected = times({{"cudaGraphLaunch", 1}, {"cudaLaunchKernel", 1}}, launches);
    calls.erase("cudaEventRecord");  // how many turns of the pace fall into these depends on the warm-up
    calls.erase("cudaEventSynchronize");
    EXPECT_EQ(calls, expected) << steps;
  }
}

// Queued piece by piece: the calls that queue, and those of the pace.
TEST_F(StepLaunches, NeitherWaitNorAllocateWithoutAGraphEither) {
  SteadyRun run({.options = {.graph = CudaGraph::kOff}}, world_);
  Counts calls = run.calls_of_steps();
  remove_questions(calls);
  Counts of_step{{"cudaLaunchKernel", 19},
                 {"cudnnConvolutionForward", 2},
                 {"cudnnConvolutionBackwardFilter", 2},
                 {"cudnnConvolutionBackwardData", 1},
                 {"cublasGemmEx", 3}};
  if (!is_alone()) {  // the stream of the sums forks and joins
    of_step = of_step + Counts{{"ncclAllReduce", 1}, {"cudaEventRecord", 2}, {"cudaStreamWaitEvent", 2}};
  }
  EXPECT_EQ(calls, times(of_step, kSteps) + pace(kSteps));
}

TEST_F(StepLaunches, WaitInOneStepOfFourAndOnlyForAStepThatIsLongDone) {
  for (const CudaGraph graph : {CudaGraph::kOff, CudaGraph::kOn}) {
    SteadyRun run({.options = {.graph = graph}}, world_);
    std::vector<int> waits;
    for (int i = 0; i < kSteps; ++i) {
      const Counts before = standin::calls();
      run.step();
      Counts calls = difference(standin::calls(), before);
      if (remove_questions(calls) + calls["cudaEventSynchronize"] > 0) {
        waits.push_back(i);
      }
    }
    ASSERT_EQ(waits.size(), kSteps / cuda::StepPace::kStride);
    for (std::size_t i = 1; i < waits.size(); ++i) {
      EXPECT_EQ(waits[i] - waits[i - 1], static_cast<int>(cuda::StepPace::kStride));
    }
  }
}

}  // namespace
}  // namespace convnet
