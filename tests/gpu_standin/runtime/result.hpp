#pragma once

#include <cuda_runtime_api.h>

namespace standin {

// What every entry point returns through: remembers an error for cudaGetLastError.
cudaError_t finish(cudaError_t result);

// cudaSuccess, or why there is no device to work with.
cudaError_t device_state();

// Whether the program's kernels run on the devices that CONVNET_STANDIN_CAPABILITY describes.
bool has_kernel_image();

}  // namespace standin
