#pragma once

#include <span>
#include <vector>

#include "compute/update_rule.hpp"

namespace convnet::cpu {

// Applies `rule` to all parameters at once, with the same bits on every processor, so that ranks on unlike
// ones keep the same weights. `moments` holds rule.moments() arrays as long as the parameters.
void apply_update(const UpdateRule& rule, std::span<const float> gradients, std::span<float> parameters,
                  std::span<std::vector<float>> moments);

}  // namespace convnet::cpu
