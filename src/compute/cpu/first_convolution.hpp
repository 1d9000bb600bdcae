#pragma once

#include <span>
#include <vector>

#include "compute/cpu/buffer.hpp"
#include "convnet/network.hpp"

namespace convnet::cpu {

// The convolution of images with one channel by 5 x 5 weights: nobody asks for the gradient of its input.
// It goes image by image, so that what comes before and after can be done while the image is in the cache.
// Activations are float32, H x W x C; weights and their gradient are canonical: channel, row, column.
// Different images may be worked on by different threads.
class FirstConvolution {
 public:
  static bool takes(const ImageShape& input, const ConvBlock& block);

  FirstConvolution(const ImageShape& input, const ConvBlock& block, int max_batch);

  // Of the coming images.
  void set_weights(std::span<const float> weights, std::span<const float> bias);

  // y = the output of image `n` of the batch, of which `x` is the input.
  void forward(int n, const float* x, float* y);

  // Takes in the gradient of the output of image `n`, which has been through forward().
  void backward(int n, const float* dy);

  // The gradient of the weights over the images 0 .. batch - 1, which have been through backward(). Float
  // sums within an image and double ones over the images, in one order whatever the number of threads.
  void add_up(int batch, std::span<float> dweights);

 private:
  float* padded(int n);
  float* image_gradient(int n);

  ImageShape input_;
  ImageShape output_;
  int padding_;
  std::span<const float> bias_;
  std::vector<float> taps_;        // 25 x C
  Buffer<float> images_;           // max_batch x padded height x padded width; the padding stays 0
  Buffer<float> image_gradients_;  // max_batch x 25 x C
  std::vector<double> gradient_;   // 25 x C
};

}  // namespace convnet::cpu
