#include "compute/cpu/norm_relu_pool_kernels.hpp"

#include <algorithm>
#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/norm_relu_pool_kernels.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set
//
#include <hwy/highway.h>

#include "compute/cpu/for_each_vector.hpp"

HWY_BEFORE_NAMESPACE();
namespace convnet::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE void add_as_doubles(D d, hn::Vec<D> values, double* totals) {
  HWY_ALIGN std::array<float, 16> lanes;
  hn::Store(values, d, lanes.data());
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
    totals[i] += static_cast<double>(lanes[i]);
  }
}

// The sum over the pixels 0 .. length - 1, of which add(sum, i) adds one: four sums side by side, since each
// addition waits for the one before.
template <class D, class Add>
HWY_INLINE hn::Vec<D> sum_over_pixels(D d, std::int64_t length, const Add& add) {
  auto first = hn::Zero(d);
  auto second = hn::Zero(d);
  auto third = hn::Zero(d);
  auto fourth = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 4 <= length; i += 4) {
    first = add(first, i);
    second = add(second, i + 1);
    third = add(third, i + 2);
    fourth = add(fourth, i + 3);
  }
  for (; i < length; ++i) {
    first = add(first, i);
  }
  return hn::Add(hn::Add(first, second), hn::Add(third, fourth));
}

void add_channel_sums(const float* x, const ImageShape& shape, double* sums, double* squares) {
  constexpr std::int64_t kBlock = 64;
  const std::int64_t stride = shape.channels;
  for (std::int64_t begin = 0; begin < shape.pixels(); begin += kBlock) {
    const std::int64_t length = std::min(kBlock, shape.pixels() - begin);
    for_each_vector(shape.channels, [&](auto d, int c) HWY_ATTR {
      const float* first = x + begin * stride + c;
      const auto sum = sum_over_pixels(d, length, [=](auto partial, std::int64_t i) HWY_ATTR {
        return hn::Add(partial, hn::LoadU(d, first + i * stride));
      });
      const auto mean = hn::Div(sum, hn::Set(d, static_cast<float>(length)));
      const auto spread = sum_over_pixels(d, length, [=](auto partial, std::int64_t i) HWY_ATTR {
        const auto distance = hn::Sub(hn::LoadU(d, first + i * stride), mean);
        return hn::MulAdd(distance, distance, partial);
      });
      add_as_doubles(d, sum, sums + c);
      add_as_doubles(d, spread, squares + c);
      HWY_ALIGN std::array<float, 16> lanes;
      hn::Store(sum, d, lanes.data());
      for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
        squares[c + static_cast<int>(i)] +=
            static_cast<double>(lanes[i]) * static_cast<double>(lanes[i]) / static_cast<double>(length);
      }
    });
  }
}

// The places of a window in row-major order, as offsets into the image.
struct Window {
  std::array<std::int64_t, 4> offsets;

  Window(const ImageShape& shape, int row, int column) {
    const std::int64_t stride = shape.channels;
    const std::int64_t top_left = (2LL * row * shape.width + 2LL * column) * stride;
    const std::int64_t below = shape.width * stride;
    offsets = {top_left, top_left + stride, top_left + below, top_left + below + stride};
  }
};

void normalise_relu_pool(const float* x, const ImageShape& shape, const float* scale, const float* shift,
                         float* y, float* winners, std::uint8_t* places) {
  std::int64_t out = 0;
  for (int row = 0; row < shape.height / 2; ++row) {
    for (int column = 0; column < shape.width / 2; ++column, out += shape.channels) {
      const Window window(shape, row, column);
      for_each_vector(shape.channels, [&](auto d, int c) HWY_ATTR {
        const hn::RebindToSigned<decltype(d)> di;
        const auto factor = hn::LoadU(d, scale + c);
        const auto term = hn::LoadU(d, shift + c);
        auto winner = hn::LoadU(d, x + window.offsets[0] + c);
        auto best = hn::MulAdd(winner, factor, term);
        auto place = hn::Zero(di);
        for (int k = 1; k < 4; ++k) {
          const auto candidate = hn::LoadU(d, x + window.offsets[static_cast<std::size_t>(k)] + c);
          const auto value = hn::MulAdd(candidate, factor, term);
          // The first of equals stays; a NaN comes through and is never replaced.
          const auto is_better = hn::Or(hn::Gt(value, best), hn::IsNaN(value));
          best = hn::IfThenElse(is_better, value, best);
          winner = hn::IfThenElse(is_better, candidate, winner);
          place = hn::IfThenElse(hn::RebindMask(di, is_better), hn::Set(di, k), place);
        }
        const auto is_cut_off = hn::Le(best, hn::Zero(d));  // false for NaN, which must come through
        hn::StoreU(hn::IfThenZeroElse(is_cut_off, best), d, y + out + c);
        if (winners != nullptr) {
          place = hn::IfThenElse(hn::RebindMask(di, is_cut_off), hn::Set(di, 4), place);
          hn::StoreU(winner, d, winners + out + c);
          const hn::Rebind<std::uint8_t, decltype(d)> d8;
          hn::StoreU(hn::DemoteTo(d8, place), d8, places + out + c);
        }
      });
    }
  }
}

void add_gradient_sums(const float* dy, const float* winners, const std::uint8_t* places,
                       const ImageShape& pooled, const float* mean, double* sums, double* products) {
  constexpr std::int64_t kBlock = 64;
  const std::int64_t stride = pooled.channels;
  for (std::int64_t begin = 0; begin < pooled.pixels(); begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, pooled.pixels());
    for_each_vector(pooled.channels, [&](auto d, int c) HWY_ATTR {
      const hn::RebindToSigned<decltype(d)> di;
      const hn::Rebind<std::uint8_t, decltype(d)> d8;
      const auto centre = hn::LoadU(d, mean + c);
      auto sum = hn::Zero(d);
      auto product = hn::Zero(d);
      for (std::int64_t i = begin * stride + c; i < end * stride + c; i += stride) {
        const auto place = hn::PromoteTo(di, hn::LoadU(d8, places + i));
        const auto is_alive = hn::RebindMask(d, hn::Lt(place, hn::Set(di, 4)));
        const auto gradient = hn::IfThenElseZero(is_alive, hn::LoadU(d, dy + i));
        sum = hn::Add(sum, gradient);
        product = hn::MulAdd(gradient, hn::Sub(hn::LoadU(d, winners + i), centre), product);
      }
      add_as_doubles(d, sum, sums + c);
      add_as_doubles(d, product, products + c);
    });
  }
}

// What x alone contributes to its gradient.
template <class D>
HWY_INLINE hn::Vec<D> statistics_term(D d, const float* x, const InputGradient& terms, int c) {
  const auto distance = hn::Sub(hn::LoadU(d, x), hn::LoadU(d, terms.mean + c));
  return hn::NegMulAdd(distance, hn::LoadU(d, terms.slope + c), hn::Neg(hn::LoadU(d, terms.offset + c)));
}

// Pixels first .. last - 1 of a row, which no window covers.
HWY_INLINE void differentiate_uncovered(const float* x, int first, int last, int channels,
                                        const InputGradient& terms, float* dx) {
  for (std::int64_t i = std::int64_t{first} * channels; i < std::int64_t{last} * channels; i += channels) {
    for_each_vector(channels, [&](auto d, int c) HWY_ATTR {
      hn::StoreU(statistics_term(d, x + i + c, terms, c), d, dx + i + c);
    });
  }
}

void input_gradient(const float* x, const ImageShape& shape, const float* dy, const std::uint8_t* places,
                    const InputGradient& terms, float* dx) {
  const std::int64_t row_size = static_cast<std::int64_t>(shape.width) * shape.channels;
  const int covered_columns = shape.width / 2 * 2;
  std::int64_t out = 0;
  for (int row = 0; row < shape.height / 2; ++row) {
    for (int column = 0; column < shape.width / 2; ++column, out += shape.channels) {
      const Window window(shape, row, column);
      for_each_vector(shape.channels, [&](auto d, int c) HWY_ATTR {
        const hn::RebindToSigned<decltype(d)> di;
        const hn::Rebind<std::uint8_t, decltype(d)> d8;
        const auto place = hn::PromoteTo(di, hn::LoadU(d8, places + out + c));
        const auto gradient = hn::Mul(hn::LoadU(d, dy + out + c), hn::LoadU(d, terms.scale + c));
        for (int k = 0; k < 4; ++k) {
          const std::int64_t pixel = window.offsets[static_cast<std::size_t>(k)] + c;
          const auto is_winner = hn::RebindMask(d, hn::Eq(place, hn::Set(di, k)));
          const auto through_pool = hn::IfThenElseZero(is_winner, gradient);
          hn::StoreU(hn::Add(statistics_term(d, x + pixel, terms, c), through_pool), d, dx + pixel);
        }
      });
    }
    for (int line = 2 * row; line < 2 * row + 2; ++line) {
      differentiate_uncovered(x + line * row_size, covered_columns, shape.width, shape.channels, terms,
                              dx + line * row_size);
    }
  }
  for (int line = shape.height / 2 * 2; line < shape.height; ++line) {
    differentiate_uncovered(x + line * row_size, 0, shape.width, shape.channels, terms, dx + line * row_size);
  }
}

}  // namespace convnet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convnet::cpu {

HWY_EXPORT(add_channel_sums);
HWY_EXPORT(normalise_relu_pool);
HWY_EXPORT(add_gradient_sums);
HWY_EXPORT(input_gradient);

void add_channel_sums(const float* x, const ImageShape& shape, double* sums, double* squares) {
  HWY_DYNAMIC_DISPATCH(add_channel_sums)(x, shape, sums, squares);
}

void normalise_relu_pool(const float* x, const ImageShape& shape, const float* scale, const float* shift,
                         float* y, float* winners, std::uint8_t* places) {
  HWY_DYNAMIC_DISPATCH(normalise_relu_pool)(x, shape, scale, shift, y, winners, places);
}

void add_gradient_sums(const float* dy, const float* winners, const std::uint8_t* places,
                       const ImageShape& pooled, const float* mean, double* sums, double* products) {
  HWY_DYNAMIC_DISPATCH(add_gradient_sums)(dy, winners, places, pooled, mean, sums, products);
}

void input_gradient(const float* x, const ImageShape& shape, const float* dy, const std::uint8_t* places,
                    const InputGradient& terms, float* dx) {
  HWY_DYNAMIC_DISPATCH(input_gradient)(x, shape, dy, places, terms, dx);
}

}  // namespace convnet::cpu
#endif
