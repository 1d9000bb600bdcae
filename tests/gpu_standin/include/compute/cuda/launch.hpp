#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "compute/cuda/check.hpp"
#include "kernel/launch_kernel.hpp"

// Stands in for the plug-in's header of this name: starts kernels that the host's compiler compiled.

namespace convnet::cuda {

// Kernels of both kinds may be linked into one test, so that the functions that start them must not be the
// same.
#ifdef __SANITIZE_THREAD__
inline namespace checked {
constexpr bool kIsChecked = true;
#else
inline namespace fast {
constexpr bool kIsChecked = false;
#endif

// Where each argument stands in the bytes that a launch keeps; the last is their number.
template <class... Parameters>
constexpr std::array<std::size_t, sizeof...(Parameters) + 1> argument_offsets() {
  std::array<std::size_t, sizeof...(Parameters) + 1> offsets{};
  std::size_t index = 0;
  std::size_t end = 0;
  [[maybe_unused]] const auto place = [&](std::size_t size, std::size_t alignment) {
    end = (end + alignment - 1) / alignment * alignment;
    offsets[index++] = end;
    end += size;
  };
  (place(sizeof(Parameters), alignof(Parameters)), ...);
  offsets[index] = (end + sizeof(void*) - 1) / sizeof(void*) * sizeof(void*);
  return offsets;
}

// Padding becomes zero: what lies there by chance could pass for a pointer.
template <class Parameter>
void store_argument(std::byte* to, Parameter value) {
  static_assert(std::is_trivially_copyable_v<Parameter>, "arguments of kernels are copied bit by bit");
  static_assert(alignof(Parameter) <= alignof(std::max_align_t));
  __builtin_clear_padding(&value);
  std::memcpy(to, &value, sizeof(value));
}

// Not part of the kernel, so that what it reads is no access of the kernel's.
template <class... Parameters, std::size_t... Indices>
[[gnu::no_sanitize("thread")]] void call_kernel(const void* kernel,
                                                [[maybe_unused]] const std::byte* arguments,
                                                std::index_sequence<Indices...>) {
  [[maybe_unused]] constexpr auto kOffsets = argument_offsets<Parameters...>();
  reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(kernel))(
      *reinterpret_cast<const Parameters*>(arguments + kOffsets[Indices])...);
}

// Queues a kernel on a stream. The only way in which kernels are started.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
            const Arguments&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  constexpr auto kOffsets = argument_offsets<Parameters...>();
  standin::KernelLaunch started{.kernel = reinterpret_cast<const void*>(kernel),
                                .grid = grid,
                                .block = block,
                                .arguments = std::vector<std::byte>(kOffsets.back()),
                                .is_checked = kIsChecked};
  started.call = [](const void* function, const std::byte* values) {
    call_kernel<Parameters...>(function, values, std::index_sequence_for<Parameters...>());
  };
  std::size_t index = 0;
  (store_argument<Parameters>(started.arguments.data() + kOffsets[index++], arguments), ...);
  check(standin::launch_kernel(std::move(started), stream), "cudaLaunchKernel");
}

}  // namespace
}  // namespace convnet::cuda
