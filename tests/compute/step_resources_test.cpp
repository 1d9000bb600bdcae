// What a step of training asks of the system: no memory, and no threads but those of the first step.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <vector>

#include "comm/mpi_communicator.hpp"
#include "compute/cpu/buffer.hpp"
#include "compute/cpu/cpu_replica.hpp"
#include "compute/heap_count.hpp"
#include "compute/synthetic.hpp"

namespace convnet {
namespace {

constexpr int kBatch = 16;

struct Setting {
  std::string name;
  int threads = 1;
  bool has_synchronised_batch_norm = false;
  bool skip_nonfinite = false;
  UpdateRule rule = {};
};

// How GoogleTest prints a setting.
void PrintTo(const Setting& setting, std::ostream* stream) {  // NOLINT(readability-identifier-naming)
  *stream << setting.name;
}

class StepResources : public testing::TestWithParam<Setting> {
 protected:
  StepResources() : rule_(GetParam().rule) {
    std::iota(rows_.begin(), rows_.end(), 0);
    replica_->load(dataset_);
    replica_->write_state(initial_state(network_, 0));
  }

  void train(int steps) {
    for (int i = 0; i < steps; ++i, ++rule_.step) {
      replica_->forward_backward(rows_, 1.0F / kBatch);
      replica_->all_reduce_gradients(world_);
      replica_->update(rule_);
    }
  }

  MpiCommunicator world_;
  Network network_ = tutorial_network({1, 28, 28}, 10);
  Dataset dataset_ = synthetic_dataset(network_, kBatch, kBatch, 1);
  std::vector<std::int32_t> rows_ = std::vector<std::int32_t>(kBatch);
  UpdateRule rule_;
  std::unique_ptr<Replica> replica_ =
      make_cpu_replica({.network = network_,
                        .max_batch = kBatch,
                        .threads = GetParam().threads,
                        .batch_norm_communicator = GetParam().has_synchronised_batch_norm ? &world_ : nullptr,
                        .skip_nonfinite = GetParam().skip_nonfinite});
};

TEST_P(StepResources, TakesNoMemoryFromTheHeap) {
  train(3);
  const HeapCounter counter;
  constexpr int kSteps = 10;
  train(kSteps);
  const HeapCount taken = counter.count();
  EXPECT_EQ(taken.own, 0);
  std::cout << "the libraries took memory " << taken.of_libraries / kSteps << " times a step\n";
  EXPECT_TRUE(replica_->result().finite);
}

std::size_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

TEST_P(StepResources, StartsItsThreadsOnce) {
  const std::size_t before = threads_of_this_process();
  train(1);
  const std::size_t first = threads_of_this_process();
  train(10);
  replica_->evaluate(rows_);
  EXPECT_EQ(threads_of_this_process(), first);
  EXPECT_LT(first, before + static_cast<std::size_t>(GetParam().threads));
}

TEST(HeapCount, SeesAVectorAndABuffer) {
  const HeapCounter counter;
  const std::vector<int> vector(1000);
  EXPECT_EQ(counter.count().own, 1);
  const cpu::Buffer<float> buffer(1000);
  EXPECT_GT(counter.count().own, 1) << vector.size() + buffer.size();
}

INSTANTIATE_TEST_SUITE_P(
    Settings, StepResources,
    testing::Values(
        Setting{"Tutorial"}, Setting{"ThreeThreads", 3},
        Setting{
            "SynchronisedClippedAdamW", 2, true, false, {.optimizer = Optimizer::kAdamW, .clip_norm = 0.5}},
        Setting{"NesterovSkippingNonfinite", 1, false, true, {.momentum = 0.9, .nesterov = true}}),
    [](const auto& setting) { return setting.param.name; });

}  // namespace
}  // namespace convnet
