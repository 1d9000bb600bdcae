#include "runtime/tracked_bytes.hpp"

#include <sys/mman.h>

#include <utility>

#include "standin.hpp"

namespace standin {

LazyBytes::LazyBytes(std::size_t bytes) : size_(bytes) {
  bytes_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bytes_ == MAP_FAILED) {
    violation("no memory left to record what kernels do");
  }
}

LazyBytes::~LazyBytes() {
  if (bytes_ != nullptr) {
    munmap(bytes_, size_);
  }
}

LazyBytes::LazyBytes(LazyBytes&& other) noexcept
    : bytes_(std::exchange(other.bytes_, nullptr)), size_(std::exchange(other.size_, 0)) {}

LazyBytes& LazyBytes::operator=(LazyBytes&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(size_, other.size_);
  return *this;
}

void TrackedBytes::refine(std::size_t to) {
  if (cells) {
    const std::size_t parts = unit / to;
    const std::size_t units = size / unit + 1;
    LazyBytes finer(units * parts * sizeof(Cell));
    for (std::size_t i = 0; i < units; ++i) {
      const Cell cell = cells.as<Cell>()[i];
      if (cell.read == 0 && cell.write == 0) {
        continue;  // leaves the page untouched, so that it takes no memory
      }
      for (std::size_t part = 0; part < parts; ++part) {
        finer.as<Cell>()[i * parts + part] = cell;
      }
    }
    cells = std::move(finer);
  }
  unit = to;
}

}  // namespace standin
