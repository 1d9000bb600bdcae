#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

// Starting kernels: what launch.hpp hands over, and what is done with it.

namespace standin {

struct KernelLaunch {
  const void* kernel = nullptr;
  void (*call)(const void* kernel, const std::byte* arguments) = nullptr;  // for one thread
  dim3 grid;
  dim3 block;
  std::vector<std::byte> arguments;  // by value, at the offsets that `call` knows
  bool is_checked = false;           // compiled so that each of its accesses is seen
};

// What cudaLaunchKernel does.
cudaError_t launch_kernel(KernelLaunch launch, cudaStream_t stream);

}  // namespace standin
