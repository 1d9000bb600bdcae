#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/idx_files.hpp"

namespace convnet {

struct BarCounts {
  std::uint32_t train = 1200;
  std::uint32_t test = 300;
};

// Training and test images of 12 x 12 in 5 classes: a bright bar whose row is the class, so that there is
// something to learn, over pixels that differ from image to image.
inline void write_bars(const std::filesystem::path& folder, const BarCounts& counts = {}) {
  const auto write = [&](const std::string& prefix, std::uint32_t count) {
    Bytes images = pixel_ramp(std::size_t{count} * 144);
    Bytes labels(count);
    for (std::size_t n = 0; n < count; ++n) {
      labels[n] = static_cast<std::uint8_t>(n * 3 % 5);
      for (std::size_t i = 0; i < 144; ++i) {
        std::uint8_t& pixel = images[n * 144 + i];
        pixel = i / 24 == labels[n] ? 255 : static_cast<std::uint8_t>(pixel / 2);
      }
    }
    write_bytes(folder / (prefix + "-images-idx3-ubyte"), idx_bytes({count, 12, 12}, images));
    write_bytes(folder / (prefix + "-labels-idx1-ubyte"), idx_bytes({count}, labels));
  };
  write("train", counts.train);
  write("t10k", counts.test);
}

}  // namespace convnet
