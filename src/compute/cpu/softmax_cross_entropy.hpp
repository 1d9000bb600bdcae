#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace convnet::cpu {

struct LossSums {
  double loss = 0.0;         // sum over the samples of -log softmax(logits)[label]
  std::int64_t correct = 0;  // samples whose first greatest logit is the label's
};

// Softmax cross-entropy of up to `max_logits` logits, N x classes, N being labels.size(). Keeps its memory.
class SoftmaxCrossEntropy {
 public:
  explicit SoftmaxCrossEntropy(std::size_t max_logits) : exponentials_(max_logits) {}

  // Where `gradient` is given, N x classes, it becomes scale (softmax(logits) - one-hot(label)).
  LossSums operator()(std::span<const float> logits, std::span<const std::int32_t> labels, float scale,
                      float* gradient);

 private:
  std::vector<double> exponentials_;
};

}  // namespace convnet::cpu
