#pragma once

#include "compute/cuda_plugin.hpp"

namespace convnet {

// Opens libconvnet_cuda.so, which lies beside the program. Throws Error (kUnavailable) that says why it
// cannot: the program was built without it, there is no driver, one of CUDA's libraries is missing, or it
// belongs to another version.
const CudaPlugin& load_cuda_plugin();

}  // namespace convnet
