#include "compute/cuda/step_record.hpp"

#include <cmath>

namespace convnet::cuda {

UpdateTerms update_terms(const UpdateRule& rule) {
  UpdateTerms terms{.rate = static_cast<float>(rule.learning_rate),
                    .decay = static_cast<float>(rule.weight_decay),
                    .momentum = static_cast<float>(rule.momentum),
                    .clip_norm = static_cast<float>(rule.clip_norm)};
  if (rule.optimizer == Optimizer::kAdamW) {
    const auto steps = static_cast<double>(rule.step);
    terms.rate = static_cast<float>(rule.learning_rate / (1.0 - std::pow(rule.beta1, steps)));
    terms.shrink = static_cast<float>(1.0 - rule.learning_rate * rule.weight_decay);
    terms.correction = static_cast<float>(std::sqrt(1.0 - std::pow(rule.beta2, steps)));
    terms.weight1 = static_cast<float>(1.0 - rule.beta1);
    terms.beta2 = static_cast<float>(rule.beta2);
    terms.weight2 = static_cast<float>(1.0 - rule.beta2);
    terms.epsilon = static_cast<float>(rule.epsilon);
  }
  return terms;
}

}  // namespace convnet::cuda
