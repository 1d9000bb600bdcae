#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "compute/cuda/buffer.hpp"
#include "compute/cuda/context.hpp"
#include "compute/cuda/device_communicator.hpp"
#include "compute/cuda/norm_kernels.hpp"
#include "convnet/network.hpp"

namespace convnet::cuda {

// Where a block's batch norm finds its tensors, in device memory. T is the type of activations.
template <class T>
struct NormTensors {
  const float* bias = nullptr;         // of the convolution before it
  const T* activation_bias = nullptr;  // the same, as activations are
  const float* gamma = nullptr;
  const float* beta = nullptr;
  float* dgamma = nullptr;
  float* dbeta = nullptr;
  float* running_mean = nullptr;
  float* running_var = nullptr;
};

// What follows a convolution without its bias: that bias, batch norm, ReLU, max-pool 2 x 2 with stride 2.
// Activations are batch x C x H x W.
template <class T>
class NormReluPool {
 public:
  virtual ~NormReluPool() = default;

  // y = pooled output of x, with the batch's statistics, whose step the running ones take. May change x,
  // which backward() wants as it is left. A communicator, where there is one, sums the statistics over its
  // ranks; an empty batch is then fine.
  virtual void forward(int batch, T* x, T* y, DeviceCommunicator* communicator) = 0;

  // The same with the running statistics.
  virtual void infer(int batch, T* x, T* y) = 0;

  // From the gradient of y to those of gamma and beta. May overwrite x, and returns the gradient of x.
  virtual const T* backward(int batch, T* x, const T* dy, DeviceCommunicator* communicator) = 0;
};

// By kernels of our own, fused; or by cuDNN, operation by operation: slower, without statistics over ranks,
// and there to check the other.
template <class T>
std::unique_ptr<NormReluPool<T>> make_fused_norm_relu_pool(const Context& context, const ImageShape& input,
                                                           int max_batch, const NormTensors<T>& tensors);
template <class T>
std::unique_ptr<NormReluPool<T>> make_cudnn_norm_relu_pool(const Context& context, const ImageShape& input,
                                                           int max_batch, const NormTensors<T>& tensors);

// The logarithms of softmax by cuDNN, row by row: batch x classes, in device memory.
void cudnn_log_softmax(const Context& context, int batch, int classes, const float* logits,
                       float* log_probabilities);

}  // namespace convnet::cuda
