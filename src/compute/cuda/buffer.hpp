#pragma once

#include <cstddef>
#include <utility>

#include "compute/cuda/check.hpp"

namespace convnet::cuda {

// An array of its own, made by `allocate` and never initialised: move-only, aligned to 256 bytes at least.
template <class Value, class Memory>
class Array {
 public:
  Array() = default;
  explicit Array(std::size_t size) : size_(size) {
    if (size > 0) {
      data_ = static_cast<Value*>(Memory::allocate(size * sizeof(Value)));
    }
  }
  ~Array() {
    if (data_ != nullptr) {
      Memory::release(data_);
    }
  }
  Array(Array&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Array& operator=(Array&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  Value* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(Value); }

 private:
  Value* data_ = nullptr;
  std::size_t size_ = 0;
};

// A release waits first for whatever is queued and may still use the memory: that is the case while an error
// is under way.
struct DeviceMemory {
  static void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
  }
  static void release(void* memory) {
    cudaDeviceSynchronize();
    cudaFree(memory);
  }
};

// Host memory that the GPU copies from and to by itself.
struct PinnedMemory {
  static void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    return memory;
  }
  static void release(void* memory) {
    cudaDeviceSynchronize();
    cudaFreeHost(memory);
  }
};

// Device memory as NCCL likes it for buffers that it is to know beforehand (its user buffer registration).
struct NcclMemory {
  static void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    check(ncclMemAlloc(&memory, bytes), "ncclMemAlloc");
    return memory;
  }
  static void release(void* memory) {
    cudaDeviceSynchronize();
    ncclMemFree(memory);
  }
};

template <class Value>
using DeviceArray = Array<Value, DeviceMemory>;
template <class Value>
using PinnedArray = Array<Value, PinnedMemory>;
template <class Value>
using NcclArray = Array<Value, NcclMemory>;

}  // namespace convnet::cuda
