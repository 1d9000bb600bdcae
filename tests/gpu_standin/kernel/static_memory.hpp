#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/tracked_bytes.hpp"

// The static data of the program and its libraries: where __shared__ and __constant__ variables lie.

namespace standin {

struct Segment {
  TrackedBytes tracked;
  std::size_t shared_begin = 0;  // from this offset on it begins as zeros: __shared__ variables are there
  bool is_writable = false;
};

// The segment that holds an address, or null.
Segment* static_memory(const void* address);

}  // namespace standin
