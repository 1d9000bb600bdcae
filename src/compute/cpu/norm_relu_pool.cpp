#include "compute/cpu/norm_relu_pool.hpp"

#include <algorithm>
#include <cmath>

#include "compute/cpu/norm_relu_pool_kernels.hpp"

namespace convnet::cpu {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kMomentum = 0.1;

}  // namespace

NormReluPool::NormReluPool(const ImageShape& input, int max_batch, Communicator* communicator)
    : input_(input),
      pooled_{input.channels, input.height / 2, input.width / 2},
      communicator_(communicator),
      winners_(static_cast<std::size_t>(max_batch * pooled_.size())),
      places_(static_cast<std::size_t>(max_batch * pooled_.size())),
      image_sums_(static_cast<std::size_t>(max_batch) * 2 * static_cast<std::size_t>(input.channels)),
      sums_(2 * static_cast<std::size_t>(input.channels) + 1),
      mean_(static_cast<std::size_t>(input.channels)),
      inverse_deviation_(mean_.size()),
      scale_(mean_.size()),
      shift_(mean_.size()),
      slope_(mean_.size()),
      offset_(mean_.size()) {}

void NormReluPool::add_up(int batch) {
  std::ranges::fill(sums_, 0.0);
  const std::size_t width = sums_.size() - 1;
  for (std::size_t n = 0; n < static_cast<std::size_t>(batch); ++n) {
    for (std::size_t i = 0; i < width; ++i) {
      sums_[i] += image_sums_.data()[n * width + i];
    }
  }
  sums_.back() = static_cast<double>(batch * input_.pixels());
}

void NormReluPool::all_reduce_sums() {
  if (communicator_ != nullptr) {
    communicator_->all_reduce_sum(std::span(sums_));
  }
}

void NormReluPool::set_statistics(std::span<const float> gamma, std::span<const float> beta,
                                  std::span<float> running_mean, std::span<float> running_var) {
  const double count = sums_.back();
  const std::size_t channels = mean_.size();
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = sums_[c] / count;
    const double spread = sums_[channels + c] - sums_[c] * mean;
    const double variance = spread < 0.0 ? 0.0 : spread / count;  // below 0 by rounding alone; NaN stays
    const double unbiased = count > 1.0 ? variance * count / (count - 1.0) : variance;
    mean_[c] = static_cast<float>(mean);
    inverse_deviation_[c] = 1.0 / std::sqrt(variance + kEpsilon);
    scale_[c] = static_cast<float>(gamma[c] * inverse_deviation_[c]);
    shift_[c] = static_cast<float>(beta[c] - mean * gamma[c] * inverse_deviation_[c]);
    running_mean[c] = static_cast<float>((1.0 - kMomentum) * running_mean[c] + kMomentum * mean);
    running_var[c] = static_cast<float>((1.0 - kMomentum) * running_var[c] + kMomentum * unbiased);
  }
}

std::span<double> NormReluPool::sums_of_image(int n) {
  const std::size_t width = sums_.size() - 1;
  return image_sums_.span().subspan(static_cast<std::size_t>(n) * width, width);
}

void NormReluPool::sum_image(int n, const float* x) {
  const auto sums = sums_of_image(n);
  std::ranges::fill(sums, 0.0);
  add_channel_sums(x, input_, sums.data(), sums.data() + input_.channels);
}

bool NormReluPool::take_batch_statistics(int batch, std::span<const float> gamma, std::span<const float> beta,
                                         std::span<float> running_mean, std::span<float> running_var) {
  add_up(batch);
  all_reduce_sums();
  if (sums_.back() == 0.0) {
    return false;
  }
  set_statistics(gamma, beta, running_mean, running_var);
  return true;
}

void NormReluPool::forward_image(int n, const float* x, float* y) {
  const std::int64_t out = n * pooled_.size();
  normalise_relu_pool(x, input_, scale_.data(), shift_.data(), y, winners_.data() + out,
                      places_.data() + out);
}

void NormReluPool::take_running_statistics(std::span<const float> gamma, std::span<const float> beta,
                                           std::span<const float> running_mean,
                                           std::span<const float> running_var) {
  for (std::size_t c = 0; c < scale_.size(); ++c) {
    const double scale = gamma[c] / std::sqrt(running_var[c] + kEpsilon);
    scale_[c] = static_cast<float>(scale);
    shift_[c] = static_cast<float>(beta[c] - running_mean[c] * scale);
  }
}

void NormReluPool::infer_image(const float* x, float* y) const {
  normalise_relu_pool(x, input_, scale_.data(), shift_.data(), y, nullptr, nullptr);
}

void NormReluPool::sum_image_gradient(int n, const float* dy) {
  const std::int64_t out = n * pooled_.size();
  const auto sums = sums_of_image(n);
  std::ranges::fill(sums, 0.0);
  add_gradient_sums(dy, winners_.data() + out, places_.data() + out, pooled_, mean_.data(), sums.data(),
                    sums.data() + input_.channels);
}

void NormReluPool::take_gradient_sums(int batch, std::span<const float> gamma, std::span<float> dgamma,
                                      std::span<float> dbeta) {
  add_up(batch);
  for (std::size_t c = 0; c < mean_.size(); ++c) {
    dbeta[c] = static_cast<float>(sums_[c]);
    dgamma[c] = static_cast<float>(sums_[mean_.size() + c] * inverse_deviation_[c]);
  }
  all_reduce_sums();
  // dx = gamma / s (g - mean of g - (x - mean) / s^2 mean of g (x - mean)), s being the deviation.
  for (std::size_t c = 0; c < mean_.size(); ++c) {
    const double scale = gamma[c] * inverse_deviation_[c];
    const double mean_product = sums_[mean_.size() + c] / sums_.back();
    scale_[c] = static_cast<float>(scale);
    slope_[c] = static_cast<float>(scale * inverse_deviation_[c] * inverse_deviation_[c] * mean_product);
    offset_[c] = static_cast<float>(scale * sums_[c] / sums_.back());
  }
}

void NormReluPool::backward_image(int n, const float* x, const float* dy, float* dx) const {
  const InputGradient terms{mean_.data(), scale_.data(), slope_.data(), offset_.data()};
  input_gradient(x, input_, dy, places_.data() + n * pooled_.size(), terms, dx);
}

}  // namespace convnet::cpu
