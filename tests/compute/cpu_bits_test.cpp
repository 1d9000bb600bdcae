// Where results of the CPU back end are promised to be the same to the last bit.
#include <gtest/gtest.h>

#include <array>

#include "compute/operations.hpp"
#include "compute/random_values.hpp"

namespace convnet {
namespace {

constexpr int kCount = 1003;  // no multiple of any vector's width

struct Updated {
  Floats parameters;
  std::vector<Floats> moments;
  bool operator==(const Updated&) const = default;
};

Updated update_three_times(const Backend& backend, UpdateRule rule) {
  const auto operations = backend.make_operations();
  Updated state{random_values(kCount, -1.0F, 1.0F, 1),
                std::vector<Floats>(static_cast<std::size_t>(rule.moments()), Floats(kCount))};
  for (rule.step = 1; rule.step <= 3; ++rule.step) {
    const Floats gradients = random_values(kCount, -1.0F, 1.0F, 10 + static_cast<std::uint64_t>(rule.step));
    operations->apply_update(rule, gradients, state.parameters, state.moments);
  }
  return state;
}

TEST(CpuBits, OfAnUpdateAreTheSameWithEveryInstructionSet) {
  const auto lesser = cpu_backends_of_lesser_instruction_sets();
  if (lesser.empty()) {
    GTEST_SKIP() << "this processor has only one of the instruction sets";
  }
  const std::array rules{
      UpdateRule{.learning_rate = 0.1, .weight_decay = 0.05},
      UpdateRule{
          .learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.05, .clip_norm = 0.5},
      UpdateRule{
          .optimizer = Optimizer::kAdamW, .learning_rate = 0.01, .weight_decay = 0.05, .clip_norm = 0.5}};
  for (const UpdateRule& rule : rules) {
    const Updated best = update_three_times(cpu_backend(1), rule);
    for (const Backend& backend : lesser) {
      EXPECT_EQ(update_three_times(backend, rule), best) << backend.name;
    }
  }
}

constexpr int kBatch = 7;
const ImageShape kImage{1, 12, 14};
const ConvBlock kBlock{.out_channels = 17, .kernel = 5, .padding = 2};

// Everything that the first block computes, one behind the other.
Floats first_block(const Backend& backend) {
  const ImageShape out = kBlock.convolved(kImage);
  const Floats x = random_values(kBatch * kImage.size(), -1.0F, 1.0F, 1);
  const Floats weights = random_values(std::int64_t{kBlock.out_channels} * 25, -1.0F, 1.0F, 2);
  const Floats channels(static_cast<std::size_t>(kBlock.out_channels), 0.5F);
  const auto operations = backend.make_operations();
  Floats all = operations->convolution_forward(kBatch, kImage, kBlock, x, weights, channels);
  const NormReluPoolPass pass =
      operations->norm_relu_pool({kBatch, out, all, channels, channels, channels, channels},
                                 random_values(kBatch * out.size() / 4, -1.0F, 1.0F, 3));
  const Floats dweights = operations->convolution_backward_weights(kBatch, kImage, kBlock, x, pass.dx);
  for (const Floats& more :
       {pass.y, pass.running_mean, pass.running_var, pass.dx, pass.dgamma, pass.dbeta, dweights}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

TEST(CpuBits, OfTheFirstBlockAreTheSameWithEveryNumberOfThreads) {
  const Floats one = first_block(cpu_backend(1));
  EXPECT_EQ(first_block(cpu_backend(2)), one);
  EXPECT_EQ(first_block(cpu_backend(3)), one);
}

TEST(CpuBits, OfTheFirstBlockAreTheSameWithAvx2AndWiderVectors) {
  for (const Backend& backend : cpu_backends_of_lesser_instruction_sets()) {
    if (backend.name == "cpu_AVX2") {
      EXPECT_EQ(first_block(backend), first_block(cpu_backend(1)));
      return;
    }
  }
  GTEST_SKIP() << "this processor has no vectors wider than AVX2's";
}

}  // namespace
}  // namespace convnet
