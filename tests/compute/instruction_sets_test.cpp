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

TEST(InstructionSets, UpdateParametersToTheSameBits) {
  const std::array rules{
      UpdateRule{.learning_rate = 0.1, .weight_decay = 0.05},
      UpdateRule{
          .learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.05, .clip_norm = 0.5},
      UpdateRule{
          .optimizer = Optimizer::kAdamW, .learning_rate = 0.01, .weight_decay = 0.05, .clip_norm = 0.5}};
  for (const UpdateRule& rule : rules) {
    const Updated best = update_three_times(cpu_backend(1), rule);
    for (const Backend& backend : cpu_backends_of_lesser_instruction_sets()) {
      EXPECT_EQ(update_three_times(backend, rule), best) << backend.name;
    }
  }
}

TEST(InstructionSets, OfWhichThereIsMoreThanOneAreForced) {
  EXPECT_FALSE(cpu_backends_of_lesser_instruction_sets().empty());
}

}  // namespace
}  // namespace convnet
