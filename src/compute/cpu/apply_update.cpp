#include "compute/cpu/apply_update.hpp"

#include <algorithm>
#include <cmath>

namespace convnet::cpu {
namespace {

// In double and in one order: the same on all ranks.
float clip_factor(const UpdateRule& rule, std::span<const float> gradients) {
  if (rule.clip_norm == 0.0) {
    return 1.0F;
  }
  double squares = 0.0;
  for (const float gradient : gradients) {
    squares += static_cast<double>(gradient) * gradient;
  }
  return static_cast<float>(std::min(1.0, rule.clip_norm / (std::sqrt(squares) + 1e-6)));
}

void apply_sgd(const UpdateRule& rule, float clip, std::span<const float> gradients,
               std::span<float> parameters, std::span<float> velocity) {
  const auto rate = static_cast<float>(rule.learning_rate);
  const auto decay = static_cast<float>(rule.weight_decay);
  const auto momentum = static_cast<float>(rule.momentum);
  if (velocity.empty()) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] -= rate * (clip * gradients[i] + decay * parameters[i]);
    }
    return;
  }
  // The velocity is 0 before the first step, so that v = momentum 0 + g needs no case of its own.
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float gradient = clip * gradients[i] + decay * parameters[i];
    velocity[i] = momentum * velocity[i] + gradient;
    parameters[i] -= rate * (rule.nesterov ? gradient + momentum * velocity[i] : velocity[i]);
  }
}

void apply_adamw(const UpdateRule& rule, float clip, std::span<const float> gradients,
                 std::span<float> parameters, std::span<float> first, std::span<float> second) {
  const auto steps = static_cast<double>(rule.step);
  const auto shrink = static_cast<float>(1.0 - rule.learning_rate * rule.weight_decay);
  const auto rate = static_cast<float>(rule.learning_rate / (1.0 - std::pow(rule.beta1, steps)));
  const auto correction = static_cast<float>(std::sqrt(1.0 - std::pow(rule.beta2, steps)));
  const auto weight1 = static_cast<float>(1.0 - rule.beta1);
  const auto beta2 = static_cast<float>(rule.beta2);
  const auto weight2 = static_cast<float>(1.0 - rule.beta2);
  const auto epsilon = static_cast<float>(rule.epsilon);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float gradient = clip * gradients[i];
    first[i] += weight1 * (gradient - first[i]);
    second[i] = beta2 * second[i] + weight2 * gradient * gradient;
    const float deviation = std::sqrt(second[i]) / correction + epsilon;
    parameters[i] = parameters[i] * shrink - rate * first[i] / deviation;
  }
}

}  // namespace

void apply_update(const UpdateRule& rule, std::span<const float> gradients, std::span<float> parameters,
                  std::span<std::vector<float>> moments) {
  const float clip = clip_factor(rule, gradients);
  if (rule.optimizer == Optimizer::kAdamW) {
    apply_adamw(rule, clip, gradients, parameters, moments[0], moments[1]);
  } else {
    apply_sgd(rule, clip, gradients, parameters,
              moments.empty() ? std::span<float>() : std::span<float>(moments[0]));
  }
}

}  // namespace convnet::cpu
