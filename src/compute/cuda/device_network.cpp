#include "compute/cuda/device_network.hpp"

#include <algorithm>
#include <string>
#include <type_traits>

#include "compute/cuda/flat_kernels.hpp"

namespace convnet::cuda {
namespace {

template <class T>
constexpr bool kIsCast = !std::is_same_v<T, float>;

std::size_t product(std::int64_t a, std::int64_t b) {
  return static_cast<std::size_t>(a * b);
}

}  // namespace

template <class T>
DeviceNetwork<T>::DeviceNetwork(const Context& context, const Network& network, int max_batch,
                                const DeviceLayout& layout, const FlatArrays& arrays)
    : context_(context),
      network_(network),
      arrays_(arrays),
      parameter_size_(layout.parameter_size()),
      linear_{0, static_cast<int>(network.block_input(network.blocks.size()).size()), network.classes},
      linear_weights_(layout.offset("fc.weight")),
      linear_bias_(layout.offset("fc.bias")),
      input_(product(max_batch, network.input.size())),
      labels_(static_cast<std::size_t>(max_batch)),
      logits_(product(max_batch, network.classes)),
      log_softmax_(context.options.kernels == Kernels::kCudnn ? logits_.size() : 0),
      dlogits_(logits_.size()),
      cast_parameters_(kIsCast<T> ? parameter_size_ : 0) {
  std::size_t most_weights = 0;
  for (std::size_t i = 0; i < network.blocks.size(); ++i) {
    const std::string prefix = "layer" + std::to_string(i + 1);
    const auto at = [&](const char* name) { return layout.offset(prefix + name); };
    const ConvBlock& shape = network.blocks[i];
    const ImageShape input = network.block_input(i);
    const NormTensors<T> tensors{.bias = arrays.parameters + at(".0.bias"),
                                 .activation_bias = as_activations(at(".0.bias")),
                                 .gamma = arrays.parameters + at(".1.weight"),
                                 .beta = arrays.parameters + at(".1.bias"),
                                 .dgamma = arrays.gradients + at(".1.weight"),
                                 .dbeta = arrays.gradients + at(".1.bias"),
                                 .running_mean = arrays.buffers + at(".1.running_mean"),
                                 .running_var = arrays.buffers + at(".1.running_var")};
    const auto make = context.options.kernels == Kernels::kFused ? make_fused_norm_relu_pool<T>
                                                                 : make_cudnn_norm_relu_pool<T>;
    const auto pooled_size = product(max_batch, shape.output(input).size());
    blocks_.push_back({shape, input, at(".0.weight"),
                       product(std::int64_t{shape.out_channels} * input.channels,
                               std::int64_t{shape.kernel} * shape.kernel),
                       DeviceArray<T>(product(max_batch, shape.convolved(input).size())),
                       DeviceArray<T>(pooled_size), DeviceArray<T>(pooled_size),
                       make(context, shape.convolved(input), max_batch, tensors)});
    most_weights = std::max(most_weights, blocks_.back().weight_count);
  }
  cast_gradient_ = DeviceArray<T>(kIsCast<T> ? most_weights : 0);
}

template <class T>
const T* DeviceNetwork<T>::as_activations(std::size_t offset) const {
  if constexpr (kIsCast<T>) {
    return cast_parameters_.data() + offset;
  } else {
    return arrays_.parameters + offset;
  }
}

template <class T>
void DeviceNetwork<T>::prepare(int batch) {
  if (batch == 0 || plans_.contains(batch)) {
    return;
  }
  Plan plan;
  std::size_t workspace = 0;
  for (const Block& block : blocks_) {
    const bool is_first = &block == &blocks_.front();
    plan.convolutions.push_back(plan_convolution(context_.cudnn.get(), block.input, block.shape, batch,
                                                 is_first ? DataGradient::kUnused : DataGradient::kNeeded,
                                                 context_.options));
    workspace = std::max(workspace, plan.convolutions.back().workspace_bytes());
  }
  plan.workspace = DeviceArray<std::byte>(workspace);
  plans_.emplace(batch, std::move(plan));
}

template <class T>
void DeviceNetwork<T>::cast_parameters() {
  if constexpr (kIsCast<T>) {
    convert(context_.stream.get(), arrays_.parameters, static_cast<std::int64_t>(parameter_size_),
            cast_parameters_.data());
  }
}

template <class T>
const T* DeviceNetwork<T>::block_input(std::size_t index) const {
  return index == 0 ? input_.data() : blocks_[index - 1].pooled.data();
}

template <class T>
void DeviceNetwork<T>::convolve_block(std::size_t index, int batch) {
  const Plan& plan = plans_.at(batch);
  convolve(context_.cudnn.get(), plan.convolutions[index], block_input(index),
           as_activations(blocks_[index].weights), blocks_[index].convolved.data(), plan.workspace.data());
}

template <class T>
void DeviceNetwork<T>::forward_linear(int batch) {
  linear_.batch = batch;
  linear_forward(context_.blas, context_.stream.get(), linear_, blocks_.back().pooled.data(),
                 as_activations(linear_weights_), arrays_.parameters + linear_bias_, logits_.data());
}

// An empty batch goes all the way too: with synchronised batch norm the other ranks wait for this one's sums.
template <class T>
void DeviceNetwork<T>::forward(int batch, DeviceCommunicator* batch_norm_communicator) {
  cast_parameters();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    if (batch > 0) {
      convolve_block(i, batch);
    }
    if (batch > 0 || batch_norm_communicator != nullptr) {
      block.norm_relu_pool->forward(batch, block.convolved.data(), block.pooled.data(),
                                    batch_norm_communicator);
    }
  }
  if (batch > 0) {
    forward_linear(batch);
  }
}

template <class T>
void DeviceNetwork<T>::infer(int batch) {
  cast_parameters();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    convolve_block(i, batch);
    blocks_[i].norm_relu_pool->infer(batch, blocks_[i].convolved.data(), blocks_[i].pooled.data());
  }
  forward_linear(batch);
}

template <class T>
LogitsBatch DeviceNetwork<T>::log_softmax(int batch) {
  if (context_.options.kernels == Kernels::kFused) {
    return {logits_.data(), labels_.data(), batch, network_.classes, false};
  }
  cudnn_log_softmax(context_, batch, network_.classes, logits_.data(), log_softmax_.data());
  return {log_softmax_.data(), labels_.data(), batch, network_.classes, true};
}

template <class T>
void DeviceNetwork<T>::compute_loss(int batch, const StepRecord* record, float* tail, Score* score) {
  softmax_cross_entropy(context_.stream.get(), log_softmax(batch), record, dlogits_.data(), tail, score);
}

template <class T>
void DeviceNetwork<T>::evaluate_loss(int batch, Score* score) {
  evaluate_logits(context_.stream.get(), log_softmax(batch), score);
}

template <class T>
void DeviceNetwork<T>::store_weight_gradient(const Block& block, const Plan& plan, std::size_t index,
                                             const T* dy) {
  const T* x = block_input(index);
  float* const gradient = arrays_.gradients + block.weights;
  if constexpr (kIsCast<T>) {
    convolve_weight_gradient(context_.cudnn.get(), plan.convolutions[index], x, dy, cast_gradient_.data(),
                             plan.workspace.data());
    convert(context_.stream.get(), cast_gradient_.data(), static_cast<std::int64_t>(block.weight_count),
            gradient);
  } else {
    convolve_weight_gradient(context_.cudnn.get(), plan.convolutions[index], x, dy, gradient,
                             plan.workspace.data());
  }
}

// The gradient of a convolution's bias is never written: batch norm takes the mean away and with it whatever
// the bias adds, so that it stays 0.
template <class T>
void DeviceNetwork<T>::backward(int batch, DeviceCommunicator* batch_norm_communicator,
                                const std::function<void(std::size_t layer)>& layer_done) {
  if (batch > 0) {
    linear_.batch = batch;
    linear_backward(context_.blas, context_.stream.get(), linear_, blocks_.back().pooled.data(),
                    as_activations(linear_weights_), dlogits_.data(), arrays_.gradients + linear_weights_,
                    arrays_.gradients + linear_bias_, blocks_.back().pooled_gradient.data());
  }
  layer_done(blocks_.size());
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    Block& block = blocks_[i];
    const T* dy = nullptr;
    if (batch > 0 || batch_norm_communicator != nullptr) {
      dy = block.norm_relu_pool->backward(batch, block.convolved.data(), block.pooled_gradient.data(),
                                          batch_norm_communicator);
    }
    if (batch > 0) {
      const Plan& plan = plans_.at(batch);
      store_weight_gradient(block, plan, i, dy);
      if (i > 0) {
        convolve_data_gradient(context_.cudnn.get(), plan.convolutions[i], dy, as_activations(block.weights),
                               blocks_[i - 1].pooled_gradient.data(), plan.workspace.data());
      }
    }
    layer_done(i);
  }
}

template class DeviceNetwork<float>;
template class DeviceNetwork<__nv_bfloat16>;

}  // namespace convnet::cuda
