#pragma once

#include <cstddef>
#include <cstdint>

// What kernels of the checked variant did with each byte of an allocation, or of a program's static data.

namespace standin {

// Memory that reads as zeros and takes room only where it was written.
class LazyBytes {
 public:
  LazyBytes() = default;
  explicit LazyBytes(std::size_t bytes);
  ~LazyBytes();
  LazyBytes(LazyBytes&& other) noexcept;
  LazyBytes& operator=(LazyBytes&& other) noexcept;
  LazyBytes(const LazyBytes&) = delete;
  LazyBytes& operator=(const LazyBytes&) = delete;

  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(bytes_);
  }
  explicit operator bool() const { return bytes_ != nullptr; }

 private:
  void* bytes_ = nullptr;
  std::size_t size_ = 0;
};

// The last accesses to `unit` bytes by threads of a kernel; see kernel/race.hpp for the bits.
struct Cell {
  std::uint64_t write = 0;
  std::uint64_t read = 0;
};

struct TrackedBytes {
  const std::byte* base = nullptr;
  std::size_t size = 0;
  LazyBytes written;     // a byte for each byte: 1 once it was written
  LazyBytes cells;       // a Cell for each unit
  std::size_t unit = 4;  // becomes less when something smaller, or across two units, is accessed

  // What the running kernel touched: [begin, end), read and written.
  std::uint64_t kernel = 0;
  std::size_t read_begin = 0, read_end = 0;
  std::size_t write_begin = 0, write_end = 0;

  // Makes each unit smaller, with nothing forgotten.
  void refine(std::size_t to);
};

}  // namespace standin
