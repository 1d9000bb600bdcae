#pragma once

#include <span>

namespace convnet::cpu {

// Whether none of the values is infinite or NaN.
bool all_finite(std::span<const float> values);

}  // namespace convnet::cpu
