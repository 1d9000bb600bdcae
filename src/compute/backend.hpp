#pragma once

#include <memory>
#include <string>

#include "compute/replica.hpp"

namespace convnet {

enum class Device { kAuto, kCpu, kCuda };

// The back end to run on, and why it and no other.
struct BackendChoice {
  Device device = Device::kCpu;
  std::string reason;
  std::string library;  // what computes there, with its version
};

// kAuto takes a GPU where one is usable, else the CPU. Throws Error (kUnavailable) if kCuda is asked for and
// cannot be had, saying what is missing.
BackendChoice choose_backend(Device requested);

// Throws Error (kInternal) if there is not enough memory.
std::unique_ptr<Replica> make_replica(const BackendChoice& backend, const ReplicaOptions& options);

}  // namespace convnet
