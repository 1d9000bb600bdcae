#include "compute/cpu/apply_update.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/apply_update.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set
//
#include <hwy/highway.h>

#include "compute/cpu/for_each_vector.hpp"

// Compiled without contraction: some processors have no fused multiply-add, and would round otherwise.

HWY_BEFORE_NAMESPACE();
namespace convnet::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 12 bytes a parameter (20 with momentum) for 5 operations (9): reading and writing bounds it.
void apply_sgd(const UpdateRule& rule, float clip_factor, std::span<const float> gradients,
               std::span<float> parameters, std::span<float> velocity) {
  for_each_vector(parameters.size(), [&](auto d, std::size_t i) HWY_ATTR {
    const auto number = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<float>(value)); };
    const auto p = hn::LoadU(d, parameters.data() + i);
    const auto g = hn::Add(hn::Mul(hn::Set(d, clip_factor), hn::LoadU(d, gradients.data() + i)),
                           hn::Mul(number(rule.weight_decay), p));
    auto change = g;
    if (!velocity.empty()) {
      // The velocity is 0 before the first step, so that v = momentum 0 + g needs no case of its own.
      const auto v = hn::Add(hn::Mul(number(rule.momentum), hn::LoadU(d, velocity.data() + i)), g);
      hn::StoreU(v, d, velocity.data() + i);
      change = rule.nesterov ? hn::Add(g, hn::Mul(number(rule.momentum), v)) : v;
    }
    hn::StoreU(hn::Sub(p, hn::Mul(number(rule.learning_rate), change)), d, parameters.data() + i);
  });
}

// 28 bytes a parameter for 15 operations, two quotients and a root among them: reading and writing bounds it.
void apply_adamw(const UpdateRule& rule, float clip_factor, std::span<const float> gradients,
                 std::span<float> parameters, std::span<float> first, std::span<float> second) {
  const auto steps = static_cast<double>(rule.step);
  const double shrink = 1.0 - rule.learning_rate * rule.weight_decay;
  const double rate = rule.learning_rate / (1.0 - std::pow(rule.beta1, steps));
  const double correction = std::sqrt(1.0 - std::pow(rule.beta2, steps));
  for_each_vector(parameters.size(), [&](auto d, std::size_t i) HWY_ATTR {
    const auto number = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<float>(value)); };
    const auto g = hn::Mul(hn::Set(d, clip_factor), hn::LoadU(d, gradients.data() + i));
    auto m = hn::LoadU(d, first.data() + i);
    m = hn::Add(m, hn::Mul(number(1.0 - rule.beta1), hn::Sub(g, m)));
    const auto v = hn::Add(hn::Mul(number(rule.beta2), hn::LoadU(d, second.data() + i)),
                           hn::Mul(hn::Mul(number(1.0 - rule.beta2), g), g));
    const auto deviation = hn::Add(hn::Div(hn::Sqrt(v), number(correction)), number(rule.epsilon));
    const auto p = hn::Mul(hn::LoadU(d, parameters.data() + i), number(shrink));
    hn::StoreU(m, d, first.data() + i);
    hn::StoreU(v, d, second.data() + i);
    hn::StoreU(hn::Sub(p, hn::Div(hn::Mul(number(rate), m), deviation)), d, parameters.data() + i);
  });
}

}  // namespace convnet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convnet::cpu {
namespace {

HWY_EXPORT(apply_sgd);
HWY_EXPORT(apply_adamw);

// In double and in one order, as eight sums that the processor can take side by side.
float clip_factor(double clip_norm, std::span<const float> gradients) {
  if (clip_norm == 0.0) {
    return 1.0F;
  }
  std::array<double, 8> squares{};
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    squares[i % squares.size()] += static_cast<double>(gradients[i]) * static_cast<double>(gradients[i]);
  }
  const double norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
  return static_cast<float>(std::min(1.0, clip_norm / (norm + 1e-6)));
}

}  // namespace

void apply_update(const UpdateRule& rule, std::span<const float> gradients, std::span<float> parameters,
                  std::span<std::vector<float>> moments) {
  const float factor = clip_factor(rule.clip_norm, gradients);
  if (rule.optimizer == Optimizer::kAdamW) {
    HWY_DYNAMIC_DISPATCH(apply_adamw)(rule, factor, gradients, parameters, moments[0], moments[1]);
  } else {
    HWY_DYNAMIC_DISPATCH(apply_sgd)
    (rule, factor, gradients, parameters, moments.empty() ? std::span<float>() : std::span(moments[0]));
  }
}

}  // namespace convnet::cpu
#endif
