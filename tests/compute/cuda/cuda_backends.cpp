#include "compute/cuda/cuda_operations.hpp"

namespace convnet {

// A replica of one batch must give the bits of a replica made for another: hence deterministic.
std::vector<Backend> all_backends() {
  return {cuda_backend(CONVNET_BACKEND_NAME, {.deterministic = true, .graph = CudaGraph::kOff}),
          cuda_backend(CONVNET_BACKEND_NAME "_graph", {.deterministic = true})};
}

}  // namespace convnet
