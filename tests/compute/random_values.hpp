#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "convnet/random.hpp"

namespace convnet {

// `count` values drawn uniformly from [low, high), the same on every machine.
inline std::vector<float> random_values(std::int64_t count, float low, float high, std::uint64_t seed) {
  TorchGenerator generator(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  std::ranges::generate(values, [&] { return generator.uniform(low, high); });
  return values;
}

}  // namespace convnet
