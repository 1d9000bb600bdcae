#pragma once

#include <memory>
#include <string>

#include "compute/replica.hpp"

namespace convnet {

// A GPU as one rank uses it.
struct GpuFacts {
  int index = 0;    // among the visible ones
  int visible = 0;  // GPUs that this rank sees
  std::string name;
  std::string uuid;
  std::string libraries;  // CUDA's, with their versions
};

// What the plug-in libconvnet_cuda.so offers. It is opened at run time, so that nothing else of the program
// needs CUDA's libraries, and exports one function: convnet_cuda_plugin, of type CudaPluginFunction.
struct CudaPlugin {
  const char* version;  // of the program that it belongs to

  // Makes the GPU number `local_rank` modulo the visible ones this process's own. Throws Error (kUnavailable)
  // naming what is missing: driver, its version, device, or code for its compute capability.
  GpuFacts (*open_gpu)(int local_rank);

  // On the GPU that open_gpu opened.
  std::unique_ptr<Replica> (*make_replica)(const ReplicaOptions& options);
};

using CudaPluginFunction = const CudaPlugin*();

}  // namespace convnet
