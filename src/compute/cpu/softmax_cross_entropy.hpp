#pragma once

#include <cstdint>
#include <span>

namespace convnet::cpu {

struct LossSums {
  double loss = 0.0;         // sum over the samples of -log softmax(logits)[label]
  std::int64_t correct = 0;  // samples whose first greatest logit is the label's
};

// Softmax cross-entropy of `logits`, N x classes, N being labels.size(). Where `gradient` is given, N x
// classes, it becomes scale (softmax(logits) - one-hot(label)).
LossSums softmax_cross_entropy(std::span<const float> logits, std::span<const std::int32_t> labels,
                               float scale, float* gradient);

}  // namespace convnet::cpu
