#include "compute/cuda/cuda_replica.hpp"
#include "compute/cuda/gpu.hpp"
#include "compute/cuda_plugin.hpp"

// The one function that the plug-in exports.
extern "C" __attribute__((visibility("default"))) const convnet::CudaPlugin* convnet_cuda_plugin() {
  static constexpr convnet::CudaPlugin kPlugin{CONVNET_VERSION, convnet::cuda::open_gpu,
                                               convnet::cuda::make_cuda_replica};
  return &kPlugin;
}
