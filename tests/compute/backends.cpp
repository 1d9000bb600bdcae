#include "compute/operations.hpp"

namespace convnet {

std::vector<Backend> all_backends() {
  std::vector<Backend> backends = cpu_backends_of_lesser_instruction_sets();
  backends.insert(backends.end(), {cpu_backend(1), cpu_backend(2), cpu_backend(3)});
  return backends;
}

}  // namespace convnet
