#include "compute/cpu/first_convolution.hpp"

#include <algorithm>

#include "compute/cpu/first_convolution_kernels.hpp"

namespace convnet::cpu {
namespace {

constexpr std::size_t kTaps = std::size_t{kTapsAcross} * kTapsAcross;

std::int64_t padded_size(const ImageShape& input, int padding) {
  return std::int64_t{input.height + 2 * padding} * (input.width + 2 * padding);
}

}  // namespace

bool FirstConvolution::takes(const ImageShape& input, const ConvBlock& block) {
  return input.channels == 1 && block.kernel == kTapsAcross;
}

FirstConvolution::FirstConvolution(const ImageShape& input, const ConvBlock& block, int max_batch)
    : input_(input),
      output_(block.convolved(input)),
      padding_(block.padding),
      taps_(kTaps * static_cast<std::size_t>(output_.channels)),
      images_(static_cast<std::size_t>(max_batch * padded_size(input, padding_))),
      image_gradients_(static_cast<std::size_t>(max_batch) * taps_.size()),
      gradient_(taps_.size()) {}

float* FirstConvolution::padded(int n) {
  return images_.data() + n * padded_size(input_, padding_);
}

float* FirstConvolution::image_gradient(int n) {
  return image_gradients_.data() + static_cast<std::size_t>(n) * taps_.size();
}

void FirstConvolution::set_weights(std::span<const float> weights, std::span<const float> bias) {
  const auto channels = static_cast<std::size_t>(output_.channels);
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t i = 0; i < kTaps; ++i) {
      taps_[i * channels + c] = weights[c * kTaps + i];
    }
  }
  bias_ = bias;
}

void FirstConvolution::forward(int n, const float* x, float* y) {
  float* const image = padded(n);
  const std::int64_t stride = input_.width + 2 * padding_;
  for (int row = 0; row < input_.height; ++row, x += input_.width) {
    std::copy_n(x, input_.width, image + (row + padding_) * stride + padding_);
  }
  convolve_image(image, output_, taps_.data(), bias_.data(), y);
}

void FirstConvolution::backward(int n, const float* dy) {
  differentiate_taps(padded(n), output_, dy, image_gradient(n));
}

void FirstConvolution::add_up(int batch, std::span<float> dweights) {
  std::ranges::fill(gradient_, 0.0);
  for (int n = 0; n < batch; ++n) {
    const float* const image = image_gradient(n);
    for (std::size_t i = 0; i < gradient_.size(); ++i) {
      gradient_[i] += static_cast<double>(image[i]);
    }
  }
  const auto channels = static_cast<std::size_t>(output_.channels);
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t i = 0; i < kTaps; ++i) {
      dweights[c * kTaps + i] = static_cast<float>(gradient_[i * channels + c]);
    }
  }
}

}  // namespace convnet::cpu
