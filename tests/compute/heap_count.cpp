// Stands in for the C++ library's operator new and the C library's allocators: each call looks up which
// library made it.
#include "compute/heap_count.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

extern "C" {
void* __libc_malloc(std::size_t size);                           // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t alignment, std::size_t size);  // NOLINT(bugprone-reserved-identifier)
}

namespace {

constinit std::atomic<bool> is_counting = false;
constinit std::atomic<int> own = 0;
constinit std::atomic<int> of_libraries = 0;

// Whether a call comes from the program itself, or from what works for it alone.
bool is_own(const void* caller) {
  Dl_info module{};
  if (dladdr(caller, &module) == 0) {
    return true;
  }
  const auto has = [&module](const char* name) { return std::strstr(module.dli_fname, name) != nullptr; };
  return !has(".so") || has("/libhwy") || has("/libstdc++");
}

void count(const void* caller) {
  if (is_counting) {
    ++(is_own(caller) ? own : of_libraries);
  }
}

void* take(std::size_t size) {
  if (void* memory = __libc_malloc(size)) {
    return memory;
  }
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) {
  count(__builtin_return_address(0));
  return take(size);
}
void* operator new[](std::size_t size) {
  count(__builtin_return_address(0));
  return take(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}

extern "C" {
void* malloc(std::size_t size) {
  count(__builtin_return_address(0));
  return __libc_malloc(size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  count(__builtin_return_address(0));
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  count(__builtin_return_address(0));
  *memory = __libc_memalign(alignment, size);
  return *memory != nullptr ? 0 : ENOMEM;
}
}

namespace convnet {

HeapCounter::HeapCounter() {
  own = 0;
  of_libraries = 0;
  is_counting = true;
}

HeapCounter::~HeapCounter() {
  is_counting = false;
}

HeapCount HeapCounter::count() const {
  return {own, of_libraries};
}

}  // namespace convnet
