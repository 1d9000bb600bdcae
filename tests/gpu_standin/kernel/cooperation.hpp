#pragma once

#include <cstdint>

// What the threads of a block do together. Called by kernels, through device_code.hpp.

namespace standin {

// __syncthreads.
void barrier();

enum class WarpOperation { kSync, kShuffle, kBallot };

struct WarpResult {
  std::uint64_t value = 0;  // of the lane asked for
  unsigned ballot = 0;      // the lanes of the mask whose value is not 0
};

// Waits for all lanes of the mask, and gives what the lane `source` brought; a source outside the warp, or
// the thread's own lane, gives the own value.
WarpResult meet_warp(WarpOperation operation, unsigned mask, std::uint64_t value, int source);

int lane_id();

// Says that the running thread changes bytes by an atomic operation.
void note_atomic(const void* address, unsigned bytes);

}  // namespace standin
