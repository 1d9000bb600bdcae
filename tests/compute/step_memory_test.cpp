// A step of training takes no memory from the heap.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <vector>

#include "comm/mpi_communicator.hpp"
#include "compute/cpu/buffer.hpp"
#include "compute/cpu/cpu_replica.hpp"
#include "compute/heap_count.hpp"
#include "compute/synthetic.hpp"
#include "data/data_file_writer.hpp"
#include "temporary_folder.hpp"
#include "train/trainer.hpp"

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

class StepMemory : public testing::TestWithParam<Setting> {
 protected:
  StepMemory() : rule_(GetParam().rule) {
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

TEST_P(StepMemory, IsNotTakenFromTheHeap) {
  train(3);
  const HeapCounter counter;
  constexpr int kSteps = 10;
  train(kSteps);
  const HeapCount taken = counter.count();
  EXPECT_EQ(taken.own, 0);
  std::cout << "the libraries took memory " << taken.of_libraries / kSteps << " times a step\n";
  EXPECT_TRUE(replica_->result().finite);
}

// Everything that a run takes between its beginning and its end, of which the steps shall have no part.
int taken_by_a_run(const std::string& data, int steps) {
  TrainOptions options;
  options.data = data;
  options.batch = kBatch;
  options.max_steps = steps;
  options.log_every = 1000;
  options.device = Device::kCpu;
  options.threads = 1;
  MpiCommunicator world;
  Trainer trainer(options, world);
  const HeapCounter counter;
  trainer.run();
  return counter.count().own;
}

TEST(StepMemory, IsNotTakenByTheTrainerEither) {
  MpiCommunicator world;
  const TemporaryFolder folder;
  const std::string data = folder / std::to_string(world.rank());
  const Network network = tutorial_network({1, 28, 28}, 10);
  write_data_file(data, synthetic_dataset(network, std::int64_t{100} * kBatch, kBatch, 1));
  taken_by_a_run(data, 1);  // what is made once in the life of a process
  EXPECT_EQ(taken_by_a_run(data, 40), taken_by_a_run(data, 10));
}

TEST(HeapCount, SeesAVectorAndABuffer) {
  std::vector<int> vector;
  const HeapCounter counter;
  vector.resize(static_cast<std::size_t>(counter.count().own) + 1000);  // not known when it is compiled
  EXPECT_EQ(counter.count().own, 1) << vector.data();
  const cpu::Buffer<float> buffer(1000);
  EXPECT_GT(counter.count().own, 1) << buffer.data();
}

INSTANTIATE_TEST_SUITE_P(
    Settings, StepMemory,
    testing::Values(
        Setting{"Tutorial"}, Setting{"ThreeThreads", 3},
        Setting{
            "SynchronisedClippedAdamW", 2, true, false, {.optimizer = Optimizer::kAdamW, .clip_norm = 0.5}},
        Setting{"NesterovSkippingNonfinite", 1, false, true, {.momentum = 0.9, .nesterov = true}}),
    [](const auto& setting) { return setting.param.name; });

}  // namespace
}  // namespace convnet
