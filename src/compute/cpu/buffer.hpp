#pragma once

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "convnet/error.hpp"

namespace convnet::cpu {

// Memory for `size` values, aligned for any vector, zero at first, never resized.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  // Throws Error (kInternal) if there is not enough memory.
  explicit Buffer(std::size_t size)
      : values_(hwy::AllocateAligned<T>(std::max<std::size_t>(size, 1))), size_(size) {
    if (!values_) {
      throw Error(ExitCode::kInternal, "not enough memory for " + std::to_string(size * sizeof(T)) +
                                           " bytes; a smaller --batch needs less");
    }
    std::fill_n(values_.get(), size, T{});
  }

  T* data() { return values_.get(); }
  const T* data() const { return values_.get(); }
  std::size_t size() const { return size_; }
  std::span<T> span() { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }

 private:
  hwy::AlignedFreeUniquePtr<T[]> values_;  // NOLINT(modernize-avoid-c-arrays): Highway wants it so
  std::size_t size_ = 0;
};

}  // namespace convnet::cpu
