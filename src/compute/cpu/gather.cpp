#include "compute/cpu/gather.hpp"

namespace convnet::cpu {

void gather_images(std::span<const std::uint8_t> images, const ImageShape& shape,
                   std::span<const std::int32_t> rows, float* x) {
  constexpr float kWhite = 255.0F;
  const std::int64_t channels = shape.channels;
  const std::int64_t pixels = shape.pixels();
#pragma omp parallel for schedule(static)
  for (std::size_t n = 0; n < rows.size(); ++n) {
    const std::uint8_t* image = images.data() + rows[n] * shape.size();
    float* out = x + static_cast<std::int64_t>(n) * shape.size();
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t p = 0; p < pixels; ++p) {
        out[p * channels + c] = static_cast<float>(image[c * pixels + p]) / kWhite;
      }
    }
  }
}

void gather_labels(std::span<const std::int32_t> labels, std::span<const std::int32_t> rows,
                   std::span<std::int32_t> batch_labels) {
  for (std::size_t n = 0; n < rows.size(); ++n) {
    batch_labels[n] = labels[static_cast<std::size_t>(rows[n])];
  }
}

}  // namespace convnet::cpu
