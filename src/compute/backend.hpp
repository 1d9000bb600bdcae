#pragma once

#include <memory>
#include <string>

#include "comm/mpi_communicator.hpp"
#include "compute/cuda_plugin.hpp"
#include "compute/replica.hpp"

namespace convnet {

enum class Device { kAuto, kCpu, kCuda };

// The back end to run on, and why it and no other.
struct BackendChoice {
  Device device = Device::kCpu;
  std::string reason;
  std::string library;  // what computes there, with its version
  GpuFacts gpu;         // of Device::kCuda
};

// kAuto takes a GPU where one is usable, else the CPU. Throws Error (kUnavailable) if kCuda is asked for and
// cannot be had, saying what is missing. Ranks of a node take its GPUs in turn.
BackendChoice choose_backend(Device requested, int local_rank);

enum class GpuSharing { kForbidden, kAllowed };

// The choice of this rank once all ranks have chosen alike. Throws Error on every rank if they have not, and,
// where sharing is forbidden, if two ranks have the same GPU. Collective.
BackendChoice agree_on_backend(Device requested, GpuSharing sharing, MpiCommunicator& world,
                               const MpiCommunicator& node);

// Throws Error (kInternal) if there is not enough memory.
std::unique_ptr<Replica> make_replica(const BackendChoice& backend, const ReplicaOptions& options);

}  // namespace convnet
