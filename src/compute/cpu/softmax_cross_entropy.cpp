#include "compute/cpu/softmax_cross_entropy.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace convnet::cpu {

LossSums softmax_cross_entropy(std::span<const float> logits, std::span<const std::int32_t> labels,
                               float scale, float* gradient) {
  LossSums sums;
  if (labels.empty()) {
    return sums;
  }
  const std::size_t classes = logits.size() / labels.size();
  std::vector<double> exponentials(classes);
  for (std::size_t n = 0; n < labels.size(); ++n) {
    const auto row = logits.subspan(n * classes, classes);
    const auto label = static_cast<std::size_t>(labels[n]);
    const auto greatest = std::ranges::max_element(row);
    const double maximum = *greatest;  // taken off every logit, so that no exponential overflows
    double total = 0.0;
    for (std::size_t k = 0; k < classes; ++k) {
      exponentials[k] = std::exp(row[k] - maximum);
      total += exponentials[k];
    }
    sums.loss += std::log(total) + maximum - row[label];
    sums.correct += static_cast<std::size_t>(greatest - row.begin()) == label ? 1 : 0;
    if (gradient != nullptr) {
      for (std::size_t k = 0; k < classes; ++k) {
        const double target = k == label ? 1.0 : 0.0;
        gradient[n * classes + k] = static_cast<float>(scale * (exponentials[k] / total - target));
      }
    }
  }
  return sums;
}

}  // namespace convnet::cpu
