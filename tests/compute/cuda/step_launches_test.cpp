// What a step of training asks of CUDA and its libraries once it has warmed up: counted by the stand-in, call
// by call.
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

// The work of a step of two blocks, by name, as src/compute/cuda queues it; T is the type of activations.

Counts common_work(const std::string& t) {
  return {{"set_record_kernel", 1},
          {"gather_kernel<" + t + ">", 1},
          {"cudnnConvolutionForward", 2},
          {"fill_rows_kernel", 1},
          {"cublasGemmEx", 3},  // forward, and the gradients of weights and input
          {"softmax_cross_entropy_kernel<" + t + ">", 1},
          {"sum_columns_kernel<" + t + ">", 1},
          {"cudnnConvolutionBackwardFilter", 2},
          {"cudnnConvolutionBackwardData", 1},  // nobody wants the images' gradient
          {"check_finite_kernel", 1}};
}

Counts fused_work(const std::string& t) {
  return {{"channel_sums_kernel<" + t + ">", 2},
          {"set_statistics_kernel", 2},
          {"normalise_relu_pool_kernel<" + t + ">", 2},
          {"gradient_sums_kernel<" + t + ">", 2},
          {"set_norm_gradients_kernel", 2},
          {"set_input_terms_kernel", 2},
          {"replace_by_gradient_kernel<" + t + ">", 2}};
}

const Counts kCudnnWork{{"cudnnAddTensor", 2},          {"cudnnBatchNormalizationForwardTraining", 2},
                        {"cudnnActivationForward", 2},  {"cudnnPoolingForward", 2},
                        {"cudnnSoftmaxForward", 1},     {"cudnnPoolingBackward", 2},
                        {"cudnnActivationBackward", 2}, {"cudnnBatchNormalizationBackward", 2}};

// Weights to bfloat16 at once; the gradients of each convolution's weights back.
const Counts kCasts{{"convert_kernel<float, __nv_bfloat16>", 1}, {"convert_kernel<__nv_bfloat16, float>", 2}};

const Counts kSgd{{"sgd_kernel", 1}};

// How a rank waits for others: it looks whether the event has come, and whether NCCL has failed.
void remove_questions(Counts& calls) {
  calls.erase("cudaEventQuery");
  calls.erase("ncclCommGetAsyncError");
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
                     .make_replica(
                         {.network = network_, .max_batch = kBatch, .skip_nonfinite = mode.skip_nonfinite})),
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

  Counts calls_of_steps() { return count_steps(standin::calls); }
  Counts work_of_steps() { return count_steps(standin::work); }

 private:
  // What the stand-in counts, of kSteps steps.
  Counts count_steps(const Counts& (*counted)()) {
    const Counts before = counted();
    for (int i = 0; i < kSteps; ++i) {
      step();
    }
    return difference(counted(), before);
  }

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
    calls.erase("cudaEventRecord");  // how many turns of the pace fall into these depends on the warm-up
    calls.erase("cudaEventSynchronize");
    EXPECT_EQ(calls, times({{"cudaGraphLaunch", 1}, {"cudaLaunchKernel", 1}}, kSteps / steps)) << steps;
  }
}

TEST_F(StepLaunches, QueueTheSameWorkWithAndWithoutAGraph) {
  expect_work({}, common_work("float") + fused_work("float") + kSgd);
  expect_work({.options = {.precision = Precision::kTf32}},
              common_work("float") + fused_work("float") + kSgd);
  expect_work({.options = {.kernels = Kernels::kCudnn}}, common_work("float") + kCudnnWork + kSgd);
  expect_work({.options = {.precision = Precision::kBf16}},
              common_work("__nv_bfloat16") + fused_work("__nv_bfloat16") + kCasts + kSgd);
  expect_work({.options = {.precision = Precision::kBf16, .kernels = Kernels::kCudnn}},
              common_work("__nv_bfloat16") + kCudnnWork + kCasts + kSgd);
}

TEST_F(StepLaunches, QueueTheWorkOfTheOptimizerAndOfStepsThatMayBeSkipped) {
  const Counts adamw{{"adamw_kernel", 1}};
  expect_work({.rule = {.optimizer = Optimizer::kAdamW}}, common_work("float") + fused_work("float") + adamw);
  expect_work({.rule = {.clip_norm = 0.5}},
              common_work("float") + fused_work("float") + kSgd + Counts{{"clip_kernel", 1}});
  expect_work({.skip_nonfinite = true},
              common_work("float") + fused_work("float") + kSgd +
                  Counts{{"begin_skippable_kernel", 1}, {"end_skippable_kernel", 1}});
}

TEST_F(StepLaunches, TellAllStepsOfALaunchWhatTheyNeedByOneKernel) {
  const Counts before = common_work("float") + fused_work("float") + kSgd;
  Counts expected = times(before, kSteps);
  if (!is_alone()) {
    expected["ncclAllReduce"] = kSteps;
  }
  expected.erase("set_record_kernel");
  expected["set_records_kernel"] = kSteps / 8;
  EXPECT_EQ(SteadyRun({.options = {.steps_per_launch = 8}}, world_).work_of_steps(), expected);
}

// Queued piece by piece: the calls that queue, and those of the pace.
TEST_F(StepLaunches, NeitherWaitNorAllocateWithoutAGraphEither) {
  SteadyRun run({.options = {.graph = CudaGraph::kOff}}, world_);
  Counts calls = run.calls_of_steps();
  remove_questions(calls);
  Counts of_step{{"cudaLaunchKernel", 21},
                 {"cudnnConvolutionForward", 2},
                 {"cudnnConvolutionBackwardFilter", 2},
                 {"cudnnConvolutionBackwardData", 1},
                 {"cublasGemmEx", 3}};
  if (!is_alone()) {  // the stream of the sums forks and joins
    of_step = of_step + Counts{{"ncclAllReduce", 1}, {"cudaEventRecord", 2}, {"cudaStreamWaitEvent", 2}};
  }
  EXPECT_EQ(calls, times(of_step, kSteps) + pace(kSteps));
}

TEST_F(StepLaunches, WaitForTheDeviceInOneStepOfFourAlone) {
  for (const CudaGraph graph : {CudaGraph::kOff, CudaGraph::kOn}) {
    SteadyRun run({.options = {.graph = graph}}, world_);
    std::vector<int> waits;
    for (int i = 0; i < kSteps; ++i) {
      const Counts before = standin::calls();
      run.step();
      Counts calls = difference(standin::calls(), before);
      if (calls["cudaEventQuery"] + calls["cudaEventSynchronize"] > 0) {
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
