#pragma once

#include <cstdint>
#include <span>

#include "convnet/network.hpp"

namespace convnet::cpu {

// Images `rows` of `images` (uint8, each C x H x W) as float32 in [0, 1], N x H x W x C: x / 255, as
// torchvision's ToTensor has it.
void gather_images(std::span<const std::uint8_t> images, const ImageShape& shape,
                   std::span<const std::int32_t> rows, float* x);

void gather_labels(std::span<const std::int32_t> labels, std::span<const std::int32_t> rows,
                   std::span<std::int32_t> batch_labels);

}  // namespace convnet::cpu
