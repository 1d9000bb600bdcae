#include "compute/device.hpp"

#include "convnet/error.hpp"

namespace convnet {

DeviceChoice choose_device(Device requested) {
  if (requested == Device::kCuda) {
    throw Error(ExitCode::kUnavailable,
                "--device cuda: this program was built without the CUDA back end; use --device cpu");
  }
  const bool is_asked_for = requested == Device::kCpu;
  return {Device::kCpu, is_asked_for ? "as asked for" : "this program was built without the CUDA back end"};
}

}  // namespace convnet
