// The whole run against what PyTorch recorded for it (tests/golden): the same losses, step by step, the same
// states and the same test results, at the world size that the recording was made with.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "comm/mpi_communicator.hpp"
#include "comm/shared_dataset.hpp"
#include "compute/backend.hpp"
#include "convnet/error.hpp"
#include "golden/golden.hpp"
#include "log_events.hpp"
#include "temporary_folder.hpp"
#include "train/trainer.hpp"

namespace convnet {
namespace {

// How far PyTorch's own recording lies from the same run in float64, at most: what rounding in float32
// amounts to. A faithful float32 run lies as far from it, perhaps on the other side: twice the distance is
// allowed.
struct Distance {
  int step;
  double parameter;
  double buffer;  // running means and variances
};

// The same for each value of the first step's gradient.
constexpr double kGradientDistance = 3e-6;

// A reference's `tie_distance` is that of the first convolution's weights where a near-tie in pooling was
// decided otherwise in float32 than in float64: the gradient then goes to another pixel's.
struct Reference {
  std::string name;
  int world_size;
  TrainOptions options;
  std::size_t steps;
  double loss_distance;
  double correct_distance;  // test images
  std::vector<Distance> state_distances;
  double tie_distance = kGradientDistance;
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

// CONVNET_GOLDEN_STEPS, where it is set, ends every run after so many steps: for a GPU that is none, and
// slow.
std::int64_t most_steps() {
  const char* const steps = std::getenv("CONVNET_GOLDEN_STEPS");
  return steps == nullptr ? std::numeric_limits<std::int64_t>::max() : std::stoll(steps);
}

std::vector<Reference> references(int world_size) {
  constexpr double kSeedLoss =
      0.5e-5;  // half of what the run must keep to; float64 differs by 6e-7 over 100 steps
  const std::vector<Distance> seed{{1, 6e-8, 6e-8}, {10, 3e-7, 6e-7}, {100, 8e-7, 4e-6}};
  const std::vector<Distance> nesterov{{1, 6.5e-7, 6e-8}, {10, 5.3e-5, 5e-5}, {100, 2.8e-3, 0.017}};
  const std::vector<Distance> adamw{{1, 6e-7, 6e-8}, {10, 1.8e-4, 6.5e-5}, {100, 0.014, 0.081}};
  std::vector<Reference> all{
      {"seed_world1.h5", 1, seed_run(2), 1200, kSeedLoss, 1.5, seed},
      {"seed_world2.h5", 2, seed_run(1), 300, kSeedLoss, 1.5, seed},
      {"seed_world4.h5", 4, seed_run(2), 300, kSeedLoss, 1.5, seed, 1.2e-4},
      {"nesterov_world2.h5", 2, nesterov_run(), 350, 3.4e-3, 7.0, nesterov},
      {"adamw_world1.h5", 1, adamw_run(), 100, 3.2e-3, 1.5, adamw},
  };
  std::erase_if(all, [&](const Reference& reference) { return reference.world_size != world_size; });
  return all;
}

class Fidelity : public testing::Test {
 protected:
  // On the GPU where there is one for each rank, else on the CPU.
  Device device() {
    try {
      const auto node = MpiCommunicator::of_node(world_);
      return agree_on_backend(Device::kAuto, GpuSharing::kForbidden, world_, node).device;
    } catch (const Error&) {
      return Device::kCpu;
    }
  }

  MpiCommunicator world_;
  Device device_ = device();
};

TEST_F(Fidelity, EveryLossAndTestResultIsPyTorchs) {
  for (const Reference& reference : references(world_.size())) {
    SCOPED_TRACE(reference.name);
    const GoldenFile golden(reference.name);
    const TemporaryFolder folder;
    TrainOptions options = reference.options;
    options.data = CONVNET_MNIST;
    options.device = device_;
    options.threads = 1;
    options.log_steps = true;
    options.log = folder / "log.jsonl";
    const bool is_whole = std::cmp_less_equal(reference.steps, most_steps());
    if (!is_whole) {
      options.max_steps = most_steps();
    }
    Trainer(options, world_).run();
    if (world_.rank() != 0) {
      continue;
    }
    const auto losses = golden.doubles("/loss/rank_0");
    const auto steps = read_events(options.log, "step");
    ASSERT_EQ(losses.size(), reference.steps);
    ASSERT_EQ(steps.size(), std::min<std::size_t>(reference.steps, static_cast<std::size_t>(most_steps())));
    const double loss_bound = 2.0 * reference.loss_distance;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      ASSERT_NEAR(steps[i]["loss_rank0"].get<double>(), losses[i], loss_bound) << "step " << i + 1;
    }
    for (const auto& epoch : read_events(options.log, "epoch_end")) {
      if (!is_whole) {
        break;  // PyTorch was tested at the end of its epochs
      }
      const std::string group = "/test/epoch_" + std::to_string(epoch["epoch"].get<int>() - 1);
      EXPECT_NEAR(epoch["test_correct"].get<double>(), golden.attribute(group, "correct"),
                  2.0 * reference.correct_distance);
      EXPECT_NEAR(epoch["test_loss"].get<double>(), golden.attribute(group, "loss"), loss_bound);
      EXPECT_EQ(epoch["test_total"].get<int>(), 10000);
    }
  }
}

// That of a convolution's bias is 0 but for rounding, and exactly 0 here.
TEST_F(Fidelity, TheFirstGradientIsPyTorchs) {
  const Dataset mnist = load_private_dataset(CONVNET_MNIST, {0, 60000}, {0, 10000});
  const Network network = tutorial_network({1, 28, 28}, 10);
  const StateLayout layout(network);
  for (const Reference& reference : references(world_.size())) {
    SCOPED_TRACE(reference.name);
    const auto replica =
        make_replica(choose_backend(device_, MpiCommunicator::of_node(world_).rank()), {.network = network});
    replica->load(mnist);
    replica->write_state(initial_state(network, 0));
    const Sampler sampler({.sample_count = 60000, .rank = world_.rank(), .world_size = world_.size()});
    const std::vector<std::int32_t> rows = sampler.epoch_rows(0);
    replica->forward_backward(std::span(rows).first(100), 0.01F / static_cast<float>(world_.size()));
    replica->all_reduce_gradients(world_);
    const std::vector<float> gradients = replica->read_gradients();
    const std::vector<float> expected = GoldenFile(reference.name).parameters("/grad_step_1", layout);
    for (const TensorInfo& tensor : layout.tensors()) {
      const double distance = tensor.name == "layer1.0.weight" ? reference.tie_distance : kGradientDistance;
      for (auto i = static_cast<std::size_t>(tensor.offset);
           tensor.is_parameter && i < static_cast<std::size_t>(tensor.offset + tensor.size()); ++i) {
        if (tensor.name.ends_with(".0.bias")) {
          ASSERT_EQ(gradients[i], 0.0F) << tensor.name;
        } else {
          ASSERT_NEAR(gradients[i], expected[i], 2.0 * distance) << tensor.name;
        }
      }
    }
  }
}

// A convolution's bias before batch norm has no effect; its gradient is rounding noise in PyTorch, which
// AdamW blows up to whole steps, and the running mean follows it.
bool is_noise(const TensorInfo& tensor, const TrainOptions& options) {
  return options.optimizer == Optimizer::kAdamW &&
         (tensor.name.ends_with(".0.bias") || tensor.name.ends_with(".running_mean"));
}

TEST_F(Fidelity, TheStateAfterSomeStepsIsPyTorchs) {
  const StateLayout layout(tutorial_network({1, 28, 28}, 10));
  for (const Reference& reference : references(world_.size())) {
    for (const Distance& distance : reference.state_distances) {
      if (distance.step > most_steps()) {
        continue;
      }
      SCOPED_TRACE(reference.name + " after " + std::to_string(distance.step) + " steps");
      TrainOptions options = reference.options;
      options.data = CONVNET_MNIST;
      options.device = device_;
      options.threads = 1;
      options.max_steps = distance.step;
      Trainer trainer(options, world_);
      trainer.run();
      const ModelState state = trainer.state();
      EXPECT_EQ(state.steps, distance.step);
      const ModelState expected =
          GoldenFile(reference.name).state("/state_step_" + std::to_string(distance.step), layout);
      for (const TensorInfo& tensor : layout.tensors()) {
        if (is_noise(tensor, options)) {
          continue;
        }
        const auto& values = tensor.is_parameter ? state.parameters : state.buffers;
        const auto& wanted = tensor.is_parameter ? expected.parameters : expected.buffers;
        const double bound = 2.0 * (tensor.is_parameter ? distance.parameter : distance.buffer);
        for (auto i = static_cast<std::size_t>(tensor.offset);
             i < static_cast<std::size_t>(tensor.offset + tensor.size()); ++i) {
          ASSERT_NEAR(values[i], wanted[i], bound)
              << tensor.name << " at " << i - static_cast<std::size_t>(tensor.offset);
        }
      }
    }
  }
}

}  // namespace
}  // namespace convnet
