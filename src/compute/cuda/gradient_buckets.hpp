#pragma once

#include <cstddef>
#include <vector>

#include "compute/cuda/device_layout.hpp"
#include "convnet/network.hpp"

namespace convnet::cuda {

// A part of the flat gradients that is all-reduced by itself, as soon as the backward pass has gone through
// `last_layer` (the linear layer counts as one more block).
struct GradientBucket {
  std::size_t last_layer = 0;
  std::size_t first = 0;  // element
  std::size_t count = 0;
};

// Splits the flat gradients with their tail of `tail` elements into `buckets` parts, in the order of the
// backward pass, as evenly by layers as it goes. Throws Error (kUsage) if there are fewer layers than
// buckets.
std::vector<GradientBucket> gradient_buckets(const Network& network, const DeviceLayout& layout, int buckets,
                                             std::size_t tail);

}  // namespace convnet::cuda
