#pragma once

#include <optional>
#include <span>

#include "compute/cpu/buffer.hpp"
#include "compute/cpu/convolution.hpp"
#include "compute/cpu/first_convolution.hpp"
#include "compute/cpu/norm_relu_pool.hpp"
#include "compute/replica.hpp"
#include "convnet/model_state.hpp"

namespace convnet::cpu {

// One block of the network, convolution to pooling, with the activations that it keeps between forward and
// backward. Parameters, gradients and buffers are those of the whole network, as they lie in ModelState.
// An empty batch goes all the way too: with synchronised batch norm the other ranks wait for its sums.
class Block {
 public:
  // `context` outlives the block.
  Block(OneDnn& context, const StateLayout& layout, std::size_t index, const ReplicaOptions& options);

  // From `x` to pooled(), with the statistics of the batch, and a step of the running ones.
  void forward(int batch, const float* x, std::span<const float> parameters, std::span<float> buffers);

  // The same with the running statistics. Keeps nothing for a backward pass.
  void infer(int batch, const float* x, std::span<const float> parameters, std::span<const float> buffers);

  // From pooled_gradient() to the gradients of this block's parameters and, unless `dx` is null, of its
  // input. `x` is the same as in forward().
  void backward(int batch, const float* x, std::span<const float> parameters, std::span<float> gradients,
                float* dx);

  const float* pooled() const { return pooled_.data(); }
  float* pooled_gradient() { return pooled_gradient_.data(); }

 private:
  template <class Next>
  void convolve(int batch, const float* x, std::span<const float> parameters, const Next& next);
  void backward_first(int batch, std::span<float> gradients);
  void backward_other(int batch, const float* x, std::span<const float> parameters,
                      std::span<float> gradients, float* dx);

  float* convolved(int n) { return convolved_.data() + n * convolved_shape_.size(); }
  float* pooled(int n) { return pooled_.data() + n * norm_relu_pool_.output().size(); }
  const float* pooled_gradient(int n) {
    return pooled_gradient_.data() + n * norm_relu_pool_.output().size();
  }

  ImageShape input_shape_;
  ImageShape convolved_shape_;
  std::optional<FirstConvolution> first_convolution_;  // where it can be used
  Convolution convolution_;                            // elsewhere
  NormReluPool norm_relu_pool_;
  Buffer<float> convolved_;           // its own gradient after the backward pass, but for the first block
  Buffer<float> convolved_gradient_;  // of the first block, an image for each thread
  Buffer<float> pooled_;
  Buffer<float> pooled_gradient_;
  TensorInfo weights_, bias_, gamma_, beta_, running_mean_, running_var_;
};

}  // namespace convnet::cpu
