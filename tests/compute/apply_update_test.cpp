#include <gtest/gtest.h>

#include <cmath>

#include "compute/backend_test.hpp"
#include "compute/judge.hpp"
#include "compute/random_values.hpp"
#include "compute/tolerance.hpp"

namespace convnet {
namespace {

class ApplyUpdate : public BackendTest {};

std::vector<UpdateRule> rules() {
  return {{.learning_rate = 0.1},
          {.learning_rate = 0.1, .weight_decay = 0.05},
          {.learning_rate = 0.1, .momentum = 0.9},
          {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.05},
          {.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.05},
          {.learning_rate = 0.1, .weight_decay = 0.05, .clip_norm = 0.5},
          {.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.05, .clip_norm = 0.5},
          {.learning_rate = 0.1, .momentum = 0.9, .clip_norm = 1000.0},
          {.optimizer = Optimizer::kAdamW, .learning_rate = 0.01, .clip_norm = 0.5},
          {.optimizer = Optimizer::kAdamW, .learning_rate = 0.01},
          {.optimizer = Optimizer::kAdamW, .learning_rate = 0.01, .weight_decay = 0.05}};
}

// From 1 down to 1e-9, which is less than AdamW's epsilon.
Floats gradients_of_all_sizes(int count, std::uint64_t seed) {
  Floats gradients = random_values(count, -1.0F, 1.0F, seed);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    gradients[i] *= std::pow(10.0F, -static_cast<float>(i % 10));
  }
  return gradients;
}

TEST_P(ApplyUpdate, FollowsEachRuleOverSeveralSteps) {
  const auto operations = GetParam().make_operations();
  constexpr int kSteps = 7;
  constexpr int kCount = 1003;
  for (std::size_t r = 0; r < rules().size(); ++r) {
    SCOPED_TRACE("rule " + std::to_string(r));
    UpdateRule rule = rules()[r];
    Floats parameters = random_values(kCount, -1.0F, 1.0F, 1);
    std::vector<Floats> moments(static_cast<std::size_t>(rule.moments()), Floats(kCount));
    judge::Doubles expected = doubles(parameters);
    std::vector<judge::Doubles> expected_moments;
    for (rule.step = 1; rule.step <= kSteps; ++rule.step) {
      const Floats gradients = gradients_of_all_sizes(kCount, static_cast<std::uint64_t>(rule.step));
      operations->apply_update(rule, gradients, parameters, moments);
      judge::apply_update(rule, doubles(gradients), expected, expected_moments);
    }
    // Each step rounds about four times; no parameter grows beyond 4, and no moment beyond the sum of a
    // geometric series of 0.9.
    EXPECT_TRUE(all_within(parameters, expected, tolerance(4.0 * kSteps, 4.0)));
    for (std::size_t m = 0; m < moments.size(); ++m) {
      EXPECT_TRUE(all_within(moments[m], expected_moments[m], tolerance(4.0 * kSteps, 10.0)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ApplyUpdate, testing::ValuesIn(all_backends()), backend_name);

}  // namespace
}  // namespace convnet
