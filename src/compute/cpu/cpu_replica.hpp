#pragma once

#include <memory>
#include <string>

#include "compute/replica.hpp"

namespace convnet {

// A replica on the CPU, with options.threads OpenMP threads. Throws Error (kInternal) if there is not enough
// memory.
std::unique_ptr<Replica> make_cpu_replica(const ReplicaOptions& options);

// "oneDNN 2.6.3"
std::string cpu_library();

}  // namespace convnet
