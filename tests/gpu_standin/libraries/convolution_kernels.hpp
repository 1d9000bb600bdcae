#pragma once

#include <cstddef>

// The two inner loops of convolutions, over whole padded planes as one long row, for the widest vectors that
// the processor has (the project adds no processor flags of its own).
namespace standin::libraries {

// Lengths of correlate() are multiples of this many floats, of dot_taps() multiples of kLanes.
inline constexpr std::size_t kBlock = 128;
inline constexpr std::size_t kLanes = 16;
// Taps of which dot_taps() makes the sums at once.
inline constexpr std::size_t kTapGroup = 5;
// The most values that are added in one float.
inline constexpr std::size_t kMostAddends = 64;

// sums[i] = sum over taps, in their order, of weights[tap] planes[offsets[tap] + i], for i < length.
void correlate(const float* planes, const float* weights, const std::size_t* offsets, std::size_t taps,
               std::size_t length, float* sums);

// For each of kTapGroup taps, the lane sums of dy[i] x[offsets[tap] + i] over i < length: a lane adds every
// kLanes-th product, kMostAddends at most, then the next row of lanes begins. sums is kTapGroup x rows x
// kLanes, a tap's rows `tap_distance` floats from the next tap's.
void dot_taps(const float* dy, const float* x, const std::size_t* offsets, std::size_t length,
              std::size_t tap_distance, float* sums);

}  // namespace standin::libraries
