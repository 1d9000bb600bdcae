#pragma once

namespace convnet::cpu {

// Calls body(n) for the images 0 .. batch - 1, on all threads: always the same ones on the same thread.
template <class Body>
void for_each_image(int batch, const Body& body) {
#pragma omp parallel for schedule(static)
  for (int n = 0; n < batch; ++n) {
    body(n);
  }
}

}  // namespace convnet::cpu
