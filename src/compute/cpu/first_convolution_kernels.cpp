#include "compute/cpu/first_convolution_kernels.hpp"

#include <algorithm>
#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/first_convolution_kernels.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set
//
#include <hwy/highway.h>

#include "compute/cpu/for_each_vector.hpp"

HWY_BEFORE_NAMESPACE();
namespace convnet::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A line of `size` neighbouring outputs, for one group of channels: `first` is the image's value at the top
// left of the first one's window.
template <std::size_t size, class D>
HWY_INLINE void convolve_line(D d, const float* first, std::int64_t stride, const float* taps,
                              const float* bias, int channels, float* y) {
  std::array<hn::Vec<D>, size> sums;
  for (std::size_t i = 0; i < size; ++i) {
    sums[i] = hn::LoadU(d, bias);
  }
  for (int row = 0; row < kTapsAcross; ++row) {
    for (int column = 0; column < kTapsAcross; ++column, taps += channels) {
      const auto tap = hn::LoadU(d, taps);
      for (std::size_t i = 0; i < size; ++i) {
        sums[i] =
            hn::MulAdd(hn::Set(d, first[row * stride + column + static_cast<std::int64_t>(i)]), tap, sums[i]);
      }
    }
  }
  for (std::size_t i = 0; i < size; ++i) {
    hn::StoreU(sums[i], d, y + i * static_cast<std::size_t>(channels));
  }
}

void convolve_image(const float* image, const ImageShape& out, const float* taps, const float* bias,
                    float* y) {
  constexpr int kLine = 14;  // sums that fit in the registers, with a tap and a value
  const std::int64_t stride = out.width + kTapsAcross - 1;
  for (int row = 0; row < out.height; ++row) {
    for (int column = 0; column < out.width;) {
      const int size = out.width - column >= kLine ? kLine : 1;
      const float* first = image + row * stride + column;
      float* line = y + (static_cast<std::int64_t>(row) * out.width + column) * out.channels;
      for_each_vector(out.channels, [&](auto d, int c) HWY_ATTR {
        if (size == kLine) {
          convolve_line<kLine>(d, first, stride, taps + c, bias + c, out.channels, line + c);
        } else {
          convolve_line<1>(d, first, stride, taps + c, bias + c, out.channels, line + c);
        }
      });
      column += size;
    }
  }
}

// The gradient of `rows` rows of taps, for one group of channels; `image` begins where the first of them
// does.
template <int rows, class D>
HWY_INLINE void differentiate_rows(D d, const float* image, const ImageShape& out, const float* dy,
                                   float* dtaps) {
  const std::int64_t stride = out.width + kTapsAcross - 1;
  std::array<hn::Vec<D>, std::size_t{rows} * kTapsAcross> sums;
  std::fill(sums.begin(), sums.end(), hn::Zero(d));
  for (int y = 0; y < out.height; ++y) {
    for (int x = 0; x < out.width; ++x, dy += out.channels) {
      const auto gradient = hn::LoadU(d, dy);
      const float* first = image + y * stride + x;
      std::size_t i = 0;
      for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < kTapsAcross; ++column, ++i) {
          sums[i] = hn::MulAdd(hn::Set(d, first[row * stride + column]), gradient, sums[i]);
        }
      }
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    hn::StoreU(sums[i], d, dtaps + i * static_cast<std::size_t>(out.channels));
  }
}

void differentiate_taps(const float* image, const ImageShape& out, const float* dy, float* dtaps) {
  constexpr int kAllRows = kTapsAcross;
  constexpr int kSomeRows = 2;  // of whose sums 16 registers hold all
  const std::int64_t stride = out.width + kTapsAcross - 1;
  for_each_vector(out.channels, [&](auto d, int c) HWY_ATTR {
    if constexpr (hn::MaxLanes(d) == 16) {  // AVX-512, with 32 registers
      differentiate_rows<kAllRows>(d, image, out, dy + c, dtaps + c);
    } else {
      for (int row = 0; row < kTapsAcross; row += kSomeRows) {
        float* place = dtaps + static_cast<std::int64_t>(row) * kTapsAcross * out.channels + c;
        if (row + kSomeRows <= kTapsAcross) {
          differentiate_rows<kSomeRows>(d, image + row * stride, out, dy + c, place);
        } else {
          differentiate_rows<1>(d, image + row * stride, out, dy + c, place);
        }
      }
    }
  });
}

}  // namespace convnet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convnet::cpu {

HWY_EXPORT(convolve_image);
HWY_EXPORT(differentiate_taps);

void convolve_image(const float* image, const ImageShape& out, const float* taps, const float* bias,
                    float* y) {
  HWY_DYNAMIC_DISPATCH(convolve_image)(image, out, taps, bias, y);
}

void differentiate_taps(const float* image, const ImageShape& out, const float* dy, float* dtaps) {
  HWY_DYNAMIC_DISPATCH(differentiate_taps)(image, out, dy, dtaps);
}

}  // namespace convnet::cpu
#endif
