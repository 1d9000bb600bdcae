#pragma once

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "convnet/error.hpp"

namespace convnet::cpu {

// Memory for `size` values, aligned for any vector, zero at first, never resized. All threads fill it, each
// the share that it would have of the images of a batch: where memory belongs to a processor, a page then
// lies with the one that uses it.
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
    T* const values = values_.get();
#pragma omp parallel for schedule(static)
    for (std::size_t i = 0; i < size; ++i) {
      values[i] = T{};
    }
  }

  T* data() {
    return values_.get();
  }
  const T* data() const {
    return values_.get();
  }
  std::size_t size() const {
    return size_;
  }
  std::span<T> span() {
    return {data(), size_};
  }
  std::span<const T> span() const {
    return {data(), size_};
  }

 private:
  hwy::AlignedFreeUniquePtr<T[]> values_;  // NOLINT(modernize-avoid-c-arrays): Highway wants it so
  std::size_t size_ = 0;
};

}  // namespace convnet::cpu
