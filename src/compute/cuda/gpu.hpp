#pragma once

#include "compute/cuda_plugin.hpp"

namespace convnet::cuda {

// CudaPlugin::open_gpu.
GpuFacts open_gpu(int local_rank);

}  // namespace convnet::cuda
