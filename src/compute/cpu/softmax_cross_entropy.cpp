#include "compute/cpu/softmax_cross_entropy.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/softmax_cross_entropy.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set
//
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convnet::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Each value x, at most 0, becomes exp(x). About 30 operations for the 16 bytes read and written: computing
// bounds it.
void exponentiate(std::span<double> values) {
  const auto exponentiate_from = [&values](auto d, std::size_t i) HWY_ATTR {
    const auto x = hn::LoadU(d, values.data() + i);
    hn::StoreU(hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x)), d, values.data() + i);  // Exp makes NaN 0
  };
  const hn::ScalableTag<double> wide;
  const std::size_t width = hn::Lanes(wide);
  const std::size_t whole = values.size() / width * width;
  for (std::size_t i = 0; i < whole; i += width) {
    exponentiate_from(wide, i);
  }
  for (std::size_t i = whole; i < values.size(); ++i) {
    exponentiate_from(hn::CappedTag<double, 1>(), i);
  }
}

}  // namespace convnet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convnet::cpu {

HWY_EXPORT(exponentiate);

LossSums SoftmaxCrossEntropy::operator()(std::span<const float> logits, std::span<const std::int32_t> labels,
                                         float scale, float* gradient) {
  LossSums sums;
  if (labels.empty()) {
    return sums;
  }
  const std::size_t classes = logits.size() / labels.size();
  const auto exponentials = std::span(exponentials_).first(logits.size());
  for (std::size_t n = 0; n < labels.size(); ++n) {
    const auto row = logits.subspan(n * classes, classes);
    const auto label = static_cast<std::size_t>(labels[n]);
    const auto greatest = std::ranges::max_element(row);
    const double maximum = *greatest;  // taken off every logit, so that no exponential overflows
    std::ranges::transform(row, exponentials.begin() + static_cast<std::ptrdiff_t>(n * classes),
                           [maximum](float logit) { return logit - maximum; });
    sums.loss -= exponentials[n * classes + label];
    sums.correct += static_cast<std::size_t>(greatest - row.begin()) == label ? 1 : 0;
  }
  HWY_DYNAMIC_DISPATCH(exponentiate)(exponentials);
  for (std::size_t n = 0; n < labels.size(); ++n) {
    const auto row = exponentials.subspan(n * classes, classes);
    const double total = std::accumulate(row.begin(), row.end(), 0.0);
    sums.loss += std::log(total);
    for (std::size_t k = 0; gradient != nullptr && k < classes; ++k) {
      const double target = k == static_cast<std::size_t>(labels[n]) ? 1.0 : 0.0;
      gradient[n * classes + k] = static_cast<float>(scale * (row[k] / total - target));
    }
  }
  return sums;
}

}  // namespace convnet::cpu
#endif
