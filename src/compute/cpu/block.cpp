#include "compute/cpu/block.hpp"

#include <omp.h>

#include <algorithm>
#include <string>

#include "compute/cpu/for_each_image.hpp"

namespace convnet::cpu {

Block::Block(OneDnn& context, const StateLayout& layout, std::size_t index, const ReplicaOptions& options)
    : input_shape_(options.network.block_input(index)),
      convolved_shape_(options.network.blocks[index].convolved(input_shape_)),
      convolution_(context, input_shape_, options.network.blocks[index]),
      norm_relu_pool_(convolved_shape_, options.max_batch, options.batch_norm_communicator),
      convolved_(static_cast<std::size_t>(options.max_batch * convolved_shape_.size())),
      pooled_(static_cast<std::size_t>(options.max_batch * norm_relu_pool_.output().size())),
      pooled_gradient_(pooled_.size()) {
  const ConvBlock& block = options.network.blocks[index];
  if (index == 0 && FirstConvolution::takes(input_shape_, block)) {
    first_convolution_.emplace(input_shape_, block, options.max_batch);
    const std::int64_t threads = omp_get_max_threads();
    convolved_gradient_ = Buffer<float>(static_cast<std::size_t>(threads * convolved_shape_.size()));
  }
  const std::string prefix = "layer" + std::to_string(index + 1);
  weights_ = layout.tensor(prefix + ".0.weight");
  bias_ = layout.tensor(prefix + ".0.bias");
  gamma_ = layout.tensor(prefix + ".1.weight");
  beta_ = layout.tensor(prefix + ".1.bias");
  running_mean_ = layout.tensor(prefix + ".1.running_mean");
  running_var_ = layout.tensor(prefix + ".1.running_var");
}

// Calls next(n) behind the convolution of each image: at once, if that goes image by image.
template <class Next>
void Block::convolve(int batch, const float* x, std::span<const float> parameters, const Next& next) {
  const auto weights = weights_.of(parameters);
  const auto bias = bias_.of(parameters);
  if (first_convolution_) {
    first_convolution_->set_weights(weights, bias);
    for_each_image(batch, [&](int n) {
      first_convolution_->forward(n, x + n * input_shape_.size(), convolved(n));
      next(n);
    });
    return;
  }
  if (batch > 0) {
    convolution_.forward(batch, x, weights, bias, convolved_.data());
  }
  for_each_image(batch, next);
}

void Block::forward(int batch, const float* x, std::span<const float> parameters, std::span<float> buffers) {
  convolve(batch, x, parameters, [&](int n) { norm_relu_pool_.sum_image(n, convolved(n)); });
  const bool has_samples =
      norm_relu_pool_.take_batch_statistics(batch, gamma_.of(parameters), beta_.of(parameters),
                                            running_mean_.of(buffers), running_var_.of(buffers));
  if (has_samples) {
    for_each_image(batch, [&](int n) { norm_relu_pool_.forward_image(n, convolved(n), pooled(n)); });
  }
}

void Block::infer(int batch, const float* x, std::span<const float> parameters,
                  std::span<const float> buffers) {
  norm_relu_pool_.take_running_statistics(gamma_.of(parameters), beta_.of(parameters),
                                          running_mean_.of(buffers), running_var_.of(buffers));
  convolve(batch, x, parameters, [&](int n) { norm_relu_pool_.infer_image(convolved(n), pooled(n)); });
}

void Block::backward(int batch, const float* x, std::span<const float> parameters, std::span<float> gradients,
                     float* dx) {
  for_each_image(batch, [&](int n) { norm_relu_pool_.sum_image_gradient(n, pooled_gradient(n)); });
  norm_relu_pool_.take_gradient_sums(batch, gamma_.of(parameters), gamma_.of(gradients), beta_.of(gradients));
  if (first_convolution_) {
    backward_first(batch, gradients);
  } else {
    backward_other(batch, x, parameters, gradients, dx);
  }
  // Batch norm takes the mean away and with it whatever the bias adds: its gradient is 0.
  std::ranges::fill(bias_.of(gradients), 0.0F);
}

void Block::backward_first(int batch, std::span<float> gradients) {
  for_each_image(batch, [&](int n) {
    float* const gradient = convolved_gradient_.data() + omp_get_thread_num() * convolved_shape_.size();
    norm_relu_pool_.backward_image(n, convolved(n), pooled_gradient(n), gradient);
    first_convolution_->backward(n, gradient);
  });
  first_convolution_->add_up(batch, weights_.of(gradients));
}

void Block::backward_other(int batch, const float* x, std::span<const float> parameters,
                           std::span<float> gradients, float* dx) {
  for_each_image(batch, [&](int n) {
    norm_relu_pool_.backward_image(n, convolved(n), pooled_gradient(n), convolved(n));
  });
  if (batch == 0) {
    std::ranges::fill(weights_.of(gradients), 0.0F);
    return;
  }
  convolution_.backward_weights(batch, x, convolved_.data(), weights_.of(gradients));
  if (dx != nullptr) {
    convolution_.backward_data(batch, convolved_.data(), weights_.of(parameters), dx);
  }
}

}  // namespace convnet::cpu
