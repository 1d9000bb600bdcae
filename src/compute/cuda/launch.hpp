#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <tuple>

#include "compute/cuda/check.hpp"

namespace convnet::cuda {

// Queues a kernel on a stream. The only way in which kernels are started.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
            const Arguments&... arguments) {
  std::tuple<Parameters...> values(arguments...);
  auto pointers =
      std::apply([](auto&... value) { return std::array<void*, sizeof...(Parameters)>{&value...}; }, values);
  constexpr std::size_t kNoDynamicSharedMemory = 0;
  check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers.data(),
                         kNoDynamicSharedMemory, stream),
        "cudaLaunchKernel");
}

}  // namespace convnet::cuda
