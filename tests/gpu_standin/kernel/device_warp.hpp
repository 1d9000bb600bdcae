#pragma once

#include <cstdint>
#include <cstring>

#include "kernel/cooperation.hpp"

// What the threads of a block, and the lanes of a warp, do together.

inline void __syncthreads() {
  standin::barrier();
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFF) {
  standin::meet_warp(standin::WarpOperation::kSync, mask, 0, standin::lane_id());
}

// Reads the value of lane `source` of the thread's group of `width` lanes; beyond the group, the thread's
// own.
template <class T>
inline T standin_shuffle(unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t), "shuffles move 8 bytes at most");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = standin::meet_warp(standin::WarpOperation::kShuffle, mask, bits, source).value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline int standin_group(int width) {
  return standin::lane_id() / width * width;
}

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return standin_shuffle(mask, value, standin_group(width) + (source & (width - 1)));
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32) {
  const int source = standin::lane_id() + static_cast<int>(distance);
  return standin_shuffle(mask, value, source < standin_group(width) + width ? source : standin::lane_id());
}

template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32) {
  const int source = standin::lane_id() - static_cast<int>(distance);
  return standin_shuffle(mask, value, source >= standin_group(width) ? source : standin::lane_id());
}

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int distance, int width = 32) {
  const int source = standin::lane_id() ^ distance;
  return standin_shuffle(mask, value, source < standin_group(width) + width ? source : standin::lane_id());
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const std::uint64_t value = predicate != 0 ? 1 : 0;
  return standin::meet_warp(standin::WarpOperation::kBallot, mask, value, standin::lane_id()).ballot;
}

inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}

inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask ? 1 : 0;
}
