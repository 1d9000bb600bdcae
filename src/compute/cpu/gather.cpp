#include "compute/cpu/gather.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/gather.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set
//
#include <hwy/highway.h>

#include "compute/cpu/for_each_vector.hpp"

HWY_BEFORE_NAMESPACE();
namespace convnet::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x = bytes / 255. Reads 1 byte and writes 4 for one division, which bounds it: 16 in about 10 cycles.
void divide_by_white(const std::uint8_t* bytes, std::int64_t count, float* x) {
  for_each_vector(count, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    const hn::RebindToSigned<decltype(d)> di;
    const auto value = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, bytes + i)));
    hn::StoreU(hn::Div(value, hn::Set(d, 255.0F)), d, x + i);
  });
}

}  // namespace convnet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convnet::cpu {

HWY_EXPORT(divide_by_white);

void gather_images(std::span<const std::uint8_t> images, const ImageShape& shape,
                   std::span<const std::int32_t> rows, float* x) {
  const std::int64_t channels = shape.channels;
  const std::int64_t pixels = shape.pixels();
#pragma omp parallel for schedule(static)
  for (std::size_t n = 0; n < rows.size(); ++n) {
    const std::uint8_t* image = images.data() + rows[n] * shape.size();
    float* out = x + static_cast<std::int64_t>(n) * shape.size();
    if (channels == 1) {
      HWY_DYNAMIC_DISPATCH(divide_by_white)(image, pixels, out);
      continue;
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t p = 0; p < pixels; ++p) {
        out[p * channels + c] = static_cast<float>(image[c * pixels + p]) / 255.0F;
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
#endif
