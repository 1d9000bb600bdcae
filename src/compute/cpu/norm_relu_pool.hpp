#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/cpu/buffer.hpp"
#include "convnet/communicator.hpp"
#include "convnet/network.hpp"

namespace convnet::cpu {

// Batch norm (Ioffe and Szegedy 2015, arXiv:1502.03167), ReLU and max-pool 2 x 2 with stride 2, fused: one
// pass for the statistics and one for the rest, both forward and backward. It goes image by image, so that
// what comes before and after can be done while the image is in the cache; different images may be worked
// on by different threads. Activations are H x W x C.
//
// Statistics: normalised with the biased batch variance, epsilon 1e-5; running = 0.9 running + 0.1 batch,
// with the unbiased variance there. Sums are float over 64 pixels, double from there on, and taken in one
// order whatever the number of threads. The gradient of a window goes to its first maximum in row-major
// order.
//
// In training: sum_image for all images, take_batch_statistics, forward_image for all; then
// sum_image_gradient for all, take_gradient_sums, backward_image for all.
class NormReluPool {
 public:
  // `input` is what the convolution gives. With a communicator, sums go over the batches of all its ranks,
  // and both take_batch_statistics and take_gradient_sums are collective.
  NormReluPool(const ImageShape& input, int max_batch, Communicator* communicator);

  const ImageShape& output() const { return pooled_; }

  // Takes in the input of image `n`.
  void sum_image(int n, const float* x);

  // Normalises what follows with the statistics of the images 0 .. batch - 1, and updates the running ones.
  // False, and nothing is done, if no rank has an image to take them from.
  bool take_batch_statistics(int batch, std::span<const float> gamma, std::span<const float> beta,
                             std::span<float> running_mean, std::span<float> running_var);

  // y = pooled output. Keeps what backward needs of image `n`.
  void forward_image(int n, const float* x, float* y);

  // Normalises what follows with the running statistics.
  void take_running_statistics(std::span<const float> gamma, std::span<const float> beta,
                               std::span<const float> running_mean, std::span<const float> running_var);

  // y = pooled output, of any image. Keeps nothing for a backward pass.
  void infer_image(const float* x, float* y) const;

  // Takes in the gradient of y of image `n`.
  void sum_image_gradient(int n, const float* dy);

  // The gradients of gamma and beta over the images 0 .. batch - 1 of this rank.
  void take_gradient_sums(int batch, std::span<const float> gamma, std::span<float> dgamma,
                          std::span<float> dbeta);

  // From the gradient of y to that of x, the input of image `n`. `dx` may be `x` itself.
  void backward_image(int n, const float* x, const float* dy, float* dx) const;

 private:
  // The sums of one image: 2 x C.
  std::span<double> sums_of_image(int n);
  // Those of all images added up in their order, into sums_.
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
