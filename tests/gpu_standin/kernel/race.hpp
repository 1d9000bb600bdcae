#pragma once

#include <cstdint>

#include "runtime/tracked_bytes.hpp"

// Finds two threads that touch the same bytes, one of them writing, with nothing between that orders them.
//
// A mark says who touched a unit of memory last, and when. Time is counted in epochs: one begins with each
// block and with each barrier of it, so that a mark of an earlier epoch of the same block is in order. Within
// an epoch, a warp counts how often its lanes have met.

namespace standin {

using Mark = std::uint64_t;  // epoch (32 bits), meetings of the warp (16), thread (10), flags (6)

constexpr Mark kOtherLanes = 1;   // lanes of the same warp touched it as well, since the warp met
constexpr Mark kOtherWarps = 2;   // threads of other warps did, in the same epoch
constexpr Mark kOtherBlocks = 4;  // threads of earlier blocks of this launch did
constexpr Mark kAtomic = 8;       // and all of them by atomic operations

constexpr std::uint32_t epoch_of(Mark mark) {
  return static_cast<std::uint32_t>(mark >> 32U);
}
constexpr unsigned meetings_of(Mark mark) {
  return mark >> 16U & 0xFFFFU;
}
constexpr unsigned thread_of(Mark mark) {
  return mark >> 6U & 0x3FFU;
}
constexpr unsigned warp_of(Mark mark) {
  return thread_of(mark) / 32U;
}
constexpr Mark make_mark(std::uint32_t epoch, unsigned meetings, unsigned thread) {
  return Mark{epoch} << 32U | Mark{meetings & 0xFFFFU} << 16U | Mark{thread} << 6U;
}

struct Era {
  std::uint32_t launch_begin = 1;  // the launch's first epoch
  std::uint32_t block_begin = 1;   // the block's
  Mark now = 0;                    // of the running thread
};

enum class Race { kNone, kInBlock, kBetweenBlocks };

// Whether a mark is of other threads, with nothing between them and now. Static memory is each block's own.
inline Race race_with(Mark mark, const Era& era, bool is_device_memory) {
  const std::uint32_t epoch = epoch_of(mark);
  if (epoch < era.launch_begin) {
    return Race::kNone;
  }
  if (epoch < era.block_begin || (mark & kOtherBlocks) != 0) {
    if (is_device_memory) {
      return Race::kBetweenBlocks;
    }
    if (epoch < era.block_begin) {
      return Race::kNone;
    }
  }
  if (epoch != epoch_of(era.now)) {
    return Race::kNone;
  }
  if ((mark & kOtherWarps) != 0 || warp_of(mark) != warp_of(era.now)) {
    return Race::kInBlock;
  }
  if (meetings_of(mark) != meetings_of(era.now)) {
    return Race::kNone;
  }
  return (mark & kOtherLanes) != 0 || thread_of(mark) != thread_of(era.now) ? Race::kInBlock : Race::kNone;
}

// The mark of now, with what must be remembered of the one before: accesses that did not collide, since all
// read or all are atomic.
inline Mark merged(Mark before, const Era& era) {
  const std::uint32_t epoch = epoch_of(before);
  if (epoch < era.launch_begin) {
    return era.now;
  }
  if (epoch < era.block_begin) {
    return era.now | kOtherBlocks;
  }
  Mark result = era.now | (before & kOtherBlocks);
  if (epoch != epoch_of(era.now)) {
    return result;
  }
  if (warp_of(before) != warp_of(era.now)) {
    return result | kOtherWarps;
  }
  result |= before & kOtherWarps;
  if (meetings_of(before) == meetings_of(era.now)) {
    result |= before & kOtherLanes;
    result |= thread_of(before) != thread_of(era.now) ? kOtherLanes : 0;
  }
  return result;
}

}  // namespace standin
