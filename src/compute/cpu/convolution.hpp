#pragma once

#include <map>
#include <memory>
#include <span>

#include "compute/cpu/onednn.hpp"
#include "convnet/network.hpp"

namespace convnet::cpu {

// A convolution by oneDNN. Activations are float32 N x H x W x C; weights and their gradient are canonical:
// out, in, row, column. Primitives are made at the first use of a batch size and kept.
class Convolution {
 public:
  // `context` outlives the convolution.
  Convolution(OneDnn& context, const ImageShape& input, const ConvBlock& block);
  ~Convolution();
  Convolution(Convolution&&) noexcept;
  Convolution& operator=(Convolution&&) noexcept;
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;

  const ImageShape& input() const { return input_; }
  ImageShape output() const { return block_.convolved(input_); }

  void forward(int batch, const float* x, std::span<const float> weights, std::span<const float> bias,
               float* y);
  void backward_weights(int batch, const float* x, const float* dy, std::span<float> dweights);
  void backward_data(int batch, const float* dy, std::span<const float> weights, float* dx);

 private:
  struct Primitives;
  Primitives& primitives(int batch);

  OneDnn* context_;
  ImageShape input_;
  ConvBlock block_;
  std::map<int, std::unique_ptr<Primitives>> by_batch_;
};

}  // namespace convnet::cpu
