#include "convnet/random.hpp"

#include <cmath>
#include <numeric>
#include <utility>

namespace convnet {

float TorchGenerator::uniform(float low, float high) {
  constexpr std::uint32_t kMantissa = (1U << 24) - 1;
  // PyTorch takes the width in float, all the rest in double, and rounds once.
  const double unit = std::ldexp(engine_() & kMantissa, -24);
  return static_cast<float>(unit * (high - low) + low);
}

std::vector<std::int32_t> TorchGenerator::permutation(std::int32_t count) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    std::swap(order[i], order[i + engine_() % (order.size() - i)]);
  }
  return order;
}

}  // namespace convnet
