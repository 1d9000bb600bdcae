#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/capture.hpp"
#include "runtime/memory.hpp"
#include "runtime/result.hpp"

namespace standin {
namespace {

enum class Place { kPageable, kPinned, kDevice };

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
  cudaStream_t stream = nullptr;
};

// Where the bytes lie. A violation if they begin in an allocation, but are not all within it.
Place place_of(const void* first, std::size_t bytes) {
  const bool is_device = device_allocation(first) != nullptr;
  const bool is_pinned = pinned_allocation(first) != nullptr;
  if ((is_device || is_pinned) && allocation_of(first, bytes) == nullptr) {
    violation("cudaMemcpyAsync of " + std::to_string(bytes) + " bytes does not lie within one allocation" +
              (is_device ? ": it begins " + describe_address(first) : ""));
  }
  return is_device ? Place::kDevice : is_pinned ? Place::kPinned : Place::kPageable;
}

cudaMemcpyKind kind_of(Place to, Place from) {
  if (to == Place::kDevice) {
    return from == Place::kDevice ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  }
  return from == Place::kDevice ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

// The host may change the source as soon as the call returns: what is copied is what stands there now.
void copy_from_pageable(const Copy& copy) {
  const auto* first = static_cast<const std::byte*>(copy.from);
  auto snapshot = std::make_shared<std::vector<std::byte>>(first, first + copy.bytes);
  enqueue(copy.stream, "cudaMemcpyAsync (host to device)", {{copy.to, copy.bytes, true}},
          [to = copy.to, snapshot] { std::memcpy(to, snapshot->data(), snapshot->size()); });
}

void copy_to_pageable(const Copy& copy) {
  enqueue(copy.stream, "cudaMemcpyAsync (device to host)", {{copy.from, copy.bytes, false}},
          [copy] { std::memcpy(copy.to, copy.from, copy.bytes); });
  wait_for({stream_of(copy.stream, "cudaMemcpyAsync").last}, "cudaMemcpyAsync to pageable memory");
}

void copy_late(const Copy& copy, cudaMemcpyKind kind) {
  const char* direction = kind == cudaMemcpyHostToDevice   ? "host to device"
                          : kind == cudaMemcpyDeviceToHost ? "device to host"
                                                           : "device to device";
  enqueue(copy.stream, std::string("cudaMemcpyAsync (") + direction + ")",
          {{copy.from, copy.bytes, false}, {copy.to, copy.bytes, true}},
          [copy] { std::memmove(copy.to, copy.from, copy.bytes); });
}

cudaError_t copy_async(const Copy& copy, cudaMemcpyKind kind) {
  Stream& stream = stream_of(copy.stream, "cudaMemcpyAsync");
  if (const cudaError_t state = require_valid_capture(stream); state != cudaSuccess || copy.bytes == 0) {
    return state;
  }
  const Place to = place_of(copy.to, copy.bytes);
  const Place from = place_of(copy.from, copy.bytes);
  const cudaMemcpyKind actual = kind_of(to, from);
  if (actual == cudaMemcpyHostToHost || (kind != actual && kind != cudaMemcpyDefault)) {
    violation("cudaMemcpyAsync: the direction does not fit the pointers, or neither is device memory");
  }
  if (to == Place::kPageable || from == Place::kPageable) {
    if (const cudaError_t refused = refuse_while_capturing(stream); refused != cudaSuccess) {
      return refused;
    }
  }
  if (to == Place::kPageable) {
    copy_to_pageable(copy);
  } else if (from == Place::kPageable) {
    copy_from_pageable(copy);
  } else {
    copy_late(copy, actual);
  }
  return cudaSuccess;
}

// Shared by the two calls that give pinned memory.
cudaError_t pinned_memory(void** pointer, std::size_t bytes) {
  if (device_state() != cudaSuccess) {
    return device_state();
  }
  if (const cudaError_t refused = refuse_while_capturing(); refused != cudaSuccess) {
    return refused;
  }
  const Allocation* allocation = bytes == 0 ? nullptr : allocate_pinned(bytes);
  *pointer = allocation == nullptr ? nullptr : allocation->base;
  return allocation == nullptr && bytes != 0 ? cudaErrorMemoryAllocation : cudaSuccess;
}

// The real call waits for the device, and so hides work that still uses the memory; where it does not, that
// is a use after free.
void release(Allocation& allocation, const char* call) {
  const std::string use = pending_use(allocation);
  if (!use.empty()) {
    violation(std::string(call) + ": '" + use + "' is queued and unfinished, and uses the allocation of " +
              std::to_string(allocation.size) + " bytes");
  }
  wait_for_device(call);
  allocation.is_pinned ? free_pinned(allocation) : free_device(allocation);
}

}  // namespace
}  // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (must_fail("cudaMalloc")) {
    return finish(cudaErrorMemoryAllocation);
  }
  if (device_state() != cudaSuccess) {
    return finish(device_state());
  }
  if (const cudaError_t refused = refuse_while_capturing(); refused != cudaSuccess) {
    return finish(refused);
  }
  const Allocation* allocation = bytes == 0 ? nullptr : allocate_device(bytes);
  *pointer = allocation == nullptr ? nullptr : allocation->base;
  return finish(allocation == nullptr && bytes != 0 ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFree(void* pointer) {
  if (must_fail("cudaFree")) {
    return finish(cudaErrorUnknown);
  }
  if (pointer == nullptr) {
    return cudaSuccess;
  }
  if (const cudaError_t refused = refuse_while_capturing(); refused != cudaSuccess) {
    return finish(refused);
  }
  Allocation* allocation = device_allocation(pointer);
  if (allocation == nullptr || !allocation->is_live || allocation->base != pointer) {
    violation("cudaFree of a pointer that is not the beginning of a live allocation" +
              (allocation == nullptr ? std::string() : ": " + describe_address(pointer)));
  }
  release(*allocation, "cudaFree");
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  return finish(must_fail("cudaMallocHost") ? cudaErrorMemoryAllocation : pinned_memory(pointer, bytes));
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return finish(must_fail("cudaHostAlloc") ? cudaErrorMemoryAllocation : pinned_memory(pointer, bytes));
}

cudaError_t cudaFreeHost(void* pointer) {
  if (must_fail("cudaFreeHost")) {
    return finish(cudaErrorUnknown);
  }
  if (pointer == nullptr) {
    return cudaSuccess;
  }
  if (const cudaError_t refused = refuse_while_capturing(); refused != cudaSuccess) {
    return finish(refused);
  }
  Allocation* allocation = pinned_allocation(pointer);
  if (allocation == nullptr || allocation->base != pointer) {
    violation("cudaFreeHost of a pointer that is not the beginning of live pinned memory");
  }
  release(*allocation, "cudaFreeHost");
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  if (must_fail("cudaMemGetInfo")) {
    return finish(cudaErrorUnknown);
  }
  *free = free_device_bytes();
  *total = device_bytes();
  return finish(device_state());
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return finish(must_fail("cudaMemcpyAsync") ? cudaErrorUnknown
                                             : copy_async({to, from, bytes, stream}, kind));
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (must_fail("cudaMemsetAsync")) {
    return finish(cudaErrorUnknown);
  }
  const cudaError_t state = require_valid_capture(stream_of(stream, "cudaMemsetAsync"));
  if (state != cudaSuccess || bytes == 0) {
    return finish(state);
  }
  if (!is_device_memory(to, bytes)) {
    violation("cudaMemsetAsync of " + std::to_string(bytes) + " bytes that are not within one allocation");
  }
  enqueue(stream, "cudaMemsetAsync", {{to, bytes, true}}, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

}  // extern "C"
