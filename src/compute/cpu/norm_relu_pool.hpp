#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/cpu/buffer.hpp"
#include "convnet/communicator.hpp"
#include "convnet/network.hpp"

namespace convnet::cpu {

// Batch norm (Ioffe and Szegedy 2015, arXiv:1502.03167), ReLU and max-pool 2 x 2 with stride 2, fused: one
// pass for the statistics and one for the rest, both forward and backward. Activations are N x H x W x C.
//
// Statistics: normalised with the biased batch variance, epsilon 1e-5; running = 0.9 running + 0.1 batch,
// with the unbiased variance there. Sums are float over 64 pixels, double from there on, and taken in one
// order whatever the number of threads. The gradient of a window goes to its first maximum in row-major
// order.
class NormReluPool {
 public:
  // `input` is what the convolution gives. With a communicator, sums go over the batches of all its ranks,
  // and forward and backward are collective.
  NormReluPool(const ImageShape& input, int max_batch, Communicator* communicator);

  const ImageShape& output() const { return pooled_; }

  // y = pooled output. Updates the running statistics, unless there is no sample to take them from.
  void forward(int batch, const float* x, std::span<const float> gamma, std::span<const float> beta,
               std::span<float> running_mean, std::span<float> running_var, float* y);

  // The same with the running statistics in place of the batch's. Keeps nothing for a backward pass.
  void infer(int batch, const float* x, std::span<const float> gamma, std::span<const float> beta,
             std::span<const float> running_mean, std::span<const float> running_var, float* y);

  // From the gradient of y to those of gamma, beta and x. `x` holds the input of the last forward() and is
  // overwritten by its own gradient: nobody needs it any more.
  void backward(int batch, float* x, const float* dy, std::span<const float> gamma, std::span<float> dgamma,
                std::span<float> dbeta);

 private:
  // What the kernels leave for each image, added up over the images in their order, into sums_.
  void add_up(int batch);
  // Sums sums_ over the ranks, if batch norm is to see them all.
  void all_reduce_sums();
  // Mean, deviation, scale and shift of this batch from sums_, and the running statistics' step.
  void set_statistics(std::span<const float> gamma, std::span<const float> beta,
                      std::span<float> running_mean, std::span<float> running_var);

  ImageShape input_;
  ImageShape pooled_;
  Communicator* communicator_;
  Buffer<float> winners_;        // x at the maximum of each window
  Buffer<std::uint8_t> places_;  // of the maximum: 0 .. 3 row-major in the window; 4 where ReLU cut it off
  Buffer<double> image_sums_;    // max_batch x 2 x C
  std::vector<double> sums_;     // two sums a channel, 2 x C, and the number of values that went into each
  std::vector<float> mean_;      // C, like the following
  std::vector<double> inverse_deviation_;
  std::vector<float> scale_;
  std::vector<float> shift_;
  std::vector<float> slope_;
  std::vector<float> offset_;
};

}  // namespace convnet::cpu
