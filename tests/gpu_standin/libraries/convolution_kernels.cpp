#include "libraries/convolution_kernels.hpp"

#include <algorithm>
#include <cstring>

namespace standin::libraries {
namespace {

// As wide as the widest registers; narrower processors take it in parts.
using Vector [[gnu::vector_size(kLanes * sizeof(float))]] = float;

struct CorrelateCall {
  const float* planes;
  const float* weights;
  const std::size_t* offsets;
  std::size_t taps;
  std::size_t length;
  float* sums;
};

[[gnu::always_inline]] inline void correlate_body(const CorrelateCall& call) {
  constexpr std::size_t kVectors = kBlock / kLanes;
  for (std::size_t start = 0; start < call.length; start += kBlock) {
    Vector sums[kVectors] = {};
    for (std::size_t tap = 0; tap < call.taps; ++tap) {
      const float weight = call.weights[tap];
      const float* x = call.planes + call.offsets[tap] + start;
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kVectors; ++v) {
        Vector values;
        std::memcpy(&values, x + v * kLanes, sizeof values);
        sums[v] += weight * values;
      }
    }
    std::memcpy(call.sums + start, sums, sizeof sums);
  }
}

struct DotCall {
  const float* dy;
  const float* x;
  const std::size_t* offsets;
  std::size_t length;
  std::size_t tap_distance;
  float* sums;
};

[[gnu::always_inline]] inline void dot_taps_body(const DotCall& call) {
  constexpr std::size_t kRow = kMostAddends * kLanes;
  std::size_t row = 0;
  for (std::size_t start = 0; start < call.length; start += kRow, ++row) {
    const std::size_t end = std::min(call.length, start + kRow);
    Vector sums[kTapGroup] = {};
    for (std::size_t i = start; i < end; i += kLanes) {
      Vector gradient;
      std::memcpy(&gradient, call.dy + i, sizeof gradient);
#pragma GCC unroll 8
      for (std::size_t tap = 0; tap < kTapGroup; ++tap) {
        Vector values;
        std::memcpy(&values, call.x + call.offsets[tap] + i, sizeof values);
        sums[tap] += gradient * values;
      }
    }
    for (std::size_t tap = 0; tap < kTapGroup; ++tap) {
      std::memcpy(call.sums + tap * call.tap_distance + row * kLanes, &sums[tap], sizeof sums[tap]);
    }
  }
}

// The same loops once more for each kind of processor. GCC's target_clones would do it too, but sanitizers
// cannot start with the resolvers that it makes.
[[gnu::target("avx512f,prefer-vector-width=512")]] void correlate_avx512(const CorrelateCall& call) {
  correlate_body(call);
}
[[gnu::target("avx2")]] void correlate_avx2(const CorrelateCall& call) {
  correlate_body(call);
}
[[gnu::target("avx512f,prefer-vector-width=512")]] void dot_taps_avx512(const DotCall& call) {
  dot_taps_body(call);
}
[[gnu::target("avx2")]] void dot_taps_avx2(const DotCall& call) {
  dot_taps_body(call);
}

}  // namespace

void correlate(const float* planes, const float* weights, const std::size_t* offsets, std::size_t taps,
               std::size_t length, float* sums) {
  const CorrelateCall call{planes, weights, offsets, taps, length, sums};
  if (__builtin_cpu_supports("avx512f")) {
    correlate_avx512(call);
  } else if (__builtin_cpu_supports("avx2")) {
    correlate_avx2(call);
  } else {
    correlate_body(call);
  }
}

void dot_taps(const float* dy, const float* x, const std::size_t* offsets, std::size_t length,
              std::size_t tap_distance, float* sums) {
  const DotCall call{dy, x, offsets, length, tap_distance, sums};
  if (__builtin_cpu_supports("avx512f")) {
    dot_taps_avx512(call);
  } else if (__builtin_cpu_supports("avx2")) {
    dot_taps_avx2(call);
  } else {
    dot_taps_body(call);
  }
}

}  // namespace standin::libraries
