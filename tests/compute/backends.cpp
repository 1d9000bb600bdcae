#include "compute/operations.hpp"

namespace convnet {

std::vector<Backend> all_backends() {
  return {cpu_backend(1), cpu_backend(2), cpu_backend(3)};
}

}  // namespace convnet
