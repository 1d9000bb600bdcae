#pragma once

#include <memory>

#include "compute/replica.hpp"

namespace convnet::cuda {

// One rank's replica on the GPU that the process has set (open_gpu). Throws Error (kInternal) if a library
// fails or there is not enough memory.
std::unique_ptr<Replica> make_cuda_replica(const ReplicaOptions& options);

}  // namespace convnet::cuda
