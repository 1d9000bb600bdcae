// The whole run against what PyTorch recorded for it (tests/golden): the same losses, step by step, the same
// states and the same test results, at the world size that the recording was made with.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/mpi_communicator.hpp"
#include "golden/golden.hpp"
#include "temporary_folder.hpp"
#include "train/trainer.hpp"

namespace convnet {
namespace {

// A recording and how far from it a faithful run may lie. The bounds come from PyTorch itself, run again in
// float64 or with another number of threads and compared with its own recording (largest differences in
// brackets).
struct Reference {
  std::string name;
  int world_size;
  TrainOptions options;
  std::int64_t steps;
  std::vector<int> state_steps;
  double loss_bound;
  double state_bound;  // of a parameter, relative to 1 + its size
};

TrainOptions seed_run(int epochs) {
  TrainOptions options = recipe_options("seed");
  options.epochs = epochs;
  return options;
}

TrainOptions nesterov_run() {
  TrainOptions options = recipe_options("seed");
  options.max_steps = 350;
  options.learning_rate = 0.01;
  options.momentum = 0.9;
  options.nesterov = true;
  options.weight_decay = 5e-4;
  options.reshuffle = true;
  return options;
}

TrainOptions adamw_run() {
  TrainOptions options = recipe_options("seed");
  options.max_steps = 100;
  options.optimizer = Optimizer::kAdamW;
  options.learning_rate = 0.002;
  options.weight_decay = 1e-2;
  return options;
}

std::vector<Reference> references(int world_size) {
  std::vector<Reference> all{
      {"seed_world1.h5", 1, seed_run(2), 1200, {1, 10, 100}, 1e-5, 1e-5},
      {"seed_world2.h5", 2, seed_run(1), 300, {1, 10, 100}, 1e-5, 1e-5},
      {"seed_world4.h5", 4, seed_run(2), 300, {1, 10, 100}, 1e-5, 1e-5},
      {"nesterov_world2.h5", 2, nesterov_run(), 350, {1, 10, 100}, 1e-3, 1e-3},
      {"adamw_world1.h5", 1, adamw_run(), 100, {1, 10, 100}, 3e-3, 1e-2},
  };
  std::erase_if(all, [&](const Reference& reference) { return reference.world_size != world_size; });
  return all;
}

std::vector<nlohmann::json> read_events(const std::filesystem::path& log, const std::string& kind) {
  std::vector<nlohmann::json> events;
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    auto event = nlohmann::json::parse(line);
    if (event["event"] == kind) {
      events.push_back(std::move(event));
    }
  }
  return events;
}

class Fidelity : public testing::Test {
 protected:
  MpiCommunicator world_;
};

TEST_F(Fidelity, EveryLossAndTestResultIsPyTorchs) {
  for (const Reference& reference : references(world_.size())) {
    SCOPED_TRACE(reference.name);
    const GoldenFile golden(reference.name);
    const TemporaryFolder folder;
    TrainOptions options = reference.options;
    options.data = CONVNET_MNIST;
    options.threads = 1;
    options.log_steps = true;
    options.log = folder / "log.jsonl";
    Trainer(options, world_).run();
    if (world_.rank() != 0) {
      continue;
    }
    const auto losses = golden.doubles("/loss/rank_0");
    const auto steps = read_events(options.log, "step");
    ASSERT_EQ(steps.size(), static_cast<std::size_t>(reference.steps));
    ASSERT_EQ(losses.size(), steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      ASSERT_NEAR(steps[i]["loss_rank0"].get<double>(), losses[i], reference.loss_bound) << "step " << i + 1;
    }
    for (const auto& epoch : read_events(options.log, "epoch_end")) {
      const std::string group = "/test/epoch_" + std::to_string(epoch["epoch"].get<int>() - 1);
      EXPECT_NEAR(epoch["test_correct"].get<double>(), golden.attribute(group, "correct"), 3.0);
      EXPECT_NEAR(epoch["test_loss"].get<double>(), golden.attribute(group, "loss"), reference.loss_bound);
      EXPECT_EQ(epoch["test_total"].get<int>(), 10000);
    }
  }
}

TEST_F(Fidelity, TheStateAfterSomeStepsIsPyTorchs) {
  for (const Reference& reference : references(world_.size())) {
    for (const int steps : reference.state_steps) {
      SCOPED_TRACE(reference.name + " after " + std::to_string(steps) + " steps");
      const GoldenFile golden(reference.name);
      TrainOptions options = reference.options;
      options.data = CONVNET_MNIST;
      options.threads = 1;
      options.max_steps = steps;
      Trainer trainer(options, world_);
      trainer.run();
      const ModelState state = trainer.state();
      EXPECT_EQ(state.steps, steps);
      const StateLayout layout(tutorial_network({1, 28, 28}, 10));
      const ModelState expected = golden.state("/state_step_" + std::to_string(steps), layout);
      for (const TensorInfo& tensor : layout.tensors()) {
        const bool is_idle_bias = tensor.name.ends_with(".0.bias");
        if (is_idle_bias && options.optimizer == Optimizer::kAdamW) {
          continue;  // its gradient is 0 but for rounding, which AdamW blows up to whole steps
        }
        const auto& values = tensor.is_parameter ? state.parameters : state.buffers;
        const auto& wanted = tensor.is_parameter ? expected.parameters : expected.buffers;
        for (std::int64_t i = tensor.offset; i < tensor.offset + tensor.size(); ++i) {
          const double right = wanted[static_cast<std::size_t>(i)];
          ASSERT_NEAR(values[static_cast<std::size_t>(i)], right,
                      reference.state_bound * (1.0 + std::abs(right)))
              << tensor.name << " at " << i - tensor.offset;
        }
      }
    }
  }
}

}  // namespace
}  // namespace convnet
