#pragma once

#include <string>

#include "compute/cuda_options.hpp"
#include "compute/operations.hpp"

namespace convnet {

// The CUDA back end as the tests run over it, on whatever GPU, or stand-in for one, the test is linked with.
// Ranks take the GPUs in turn; where there are too few for NCCL they are summed over by way of the host.
Backend cuda_backend(const std::string& name, CudaOptions options);

}  // namespace convnet
