#include "compute/backend.hpp"

#include "compute/cpu/cpu_replica.hpp"
#include "convnet/error.hpp"

namespace convnet {

BackendChoice choose_backend(Device requested) {
  if (requested == Device::kCuda) {
    throw Error(ExitCode::kUnavailable,
                "--device cuda: this program was built without the CUDA back end; use --device cpu");
  }
  const bool is_asked_for = requested == Device::kCpu;
  return {Device::kCpu, is_asked_for ? "as asked for" : "this program was built without the CUDA back end",
          cpu_library()};
}

std::unique_ptr<Replica> make_replica(const BackendChoice& /*the only one so far*/,
                                      const ReplicaOptions& options) {
  return make_cpu_replica(options);
}

}  // namespace convnet
