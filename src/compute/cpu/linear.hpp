#pragma once

#include <span>

#include "compute/cpu/buffer.hpp"
#include "convnet/network.hpp"

namespace convnet::cpu {

// A linear layer over flattened images, by oneDNN's sgemm. The images are N x H x W x C in memory; the
// weights and their gradient are canonical, classes x (C x H x W), and are rearranged here.
class Linear {
 public:
  Linear(const ImageShape& input, int classes);

  // y = x weights^T + bias, N x classes.
  void forward(int batch, const float* x, std::span<const float> weights, std::span<const float> bias,
               float* y);

  // From dy to the gradients of weights, bias and x. Uses the weights given to the last forward().
  void backward(int batch, const float* x, const float* dy, std::span<float> dweights, std::span<float> dbias,
                float* dx);

 private:
  ImageShape input_;
  int classes_;
  Buffer<float> weights_;   // classes x (H x W x C)
  Buffer<float> dweights_;  // likewise
};

}  // namespace convnet::cpu
