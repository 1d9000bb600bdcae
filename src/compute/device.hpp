#pragma once

#include <string>

namespace convnet {

enum class Device { kAuto, kCpu, kCuda };

// The back end to run on, and why it and no other.
struct DeviceChoice {
  Device device = Device::kCpu;
  std::string reason;
};

// kAuto takes a GPU where one is usable, else the CPU. Throws Error (kUnavailable) if kCuda is asked for and
// cannot be had, saying what is missing.
DeviceChoice choose_device(Device requested);

}  // namespace convnet
