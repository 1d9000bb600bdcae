#pragma once

#include <cstdint>

namespace convnet {

enum class Optimizer { kSgd, kAdamW };

// One update of all parameters p from the gradient g, as torch.optim computes it (its documentation's
// formulas). With clip_norm above 0, g is first multiplied by min(1, clip_norm / (|g| + 1e-6)), |g| being its
// Euclidean norm over all parameters, as torch.nn.utils.clip_grad_norm_ does:
//   SGD:    g += weight_decay p; v = momentum v + g (at the first step v = g); with Nesterov g += momentum v,
//   else
//           g = v; p -= learning_rate g.
//   AdamW:  p -= learning_rate weight_decay p; m += (1 - beta1)(g - m); v = beta2 v + (1 - beta2) g^2;
//           p -= learning_rate / (1 - beta1^step) m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon).
struct UpdateRule {
  Optimizer optimizer = Optimizer::kSgd;
  double learning_rate = 1e-4;  // >= 0
  double momentum = 0.0;        // [0, 1); 0: no momentum is kept
  bool nesterov = false;
  double weight_decay = 0.0;  // >= 0
  double clip_norm = 0.0;     // >= 0; 0: the gradient is taken as it is
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  std::int64_t step = 1;  // 1 for the first update of a run

  // Moments that the rule keeps for each parameter: 0, 1 (momentum) or 2 (AdamW).
  int moments() const {
    if (optimizer == Optimizer::kAdamW) {
      return 2;
    }
    return momentum != 0.0 ? 1 : 0;
  }
};

}  // namespace convnet
