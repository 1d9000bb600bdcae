#include "compute/cpu/cpu_replica.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "compute/cpu/apply_update.hpp"
#include "compute/cpu/buffer.hpp"
#include "compute/cpu/convolution.hpp"
#include "compute/cpu/gather.hpp"
#include "compute/cpu/linear.hpp"
#include "compute/cpu/norm_relu_pool.hpp"
#include "compute/cpu/softmax_cross_entropy.hpp"

namespace convnet {
namespace cpu {
namespace {

// One block of the network with the activations that it keeps between forward and backward.
struct Block {
  Block(OneDnn& context, const StateLayout& layout, std::size_t index, const ReplicaOptions& options)
      : convolution(context, options.network.block_input(index), options.network.blocks[index]),
        norm_relu_pool(convolution.output(), options.max_batch, options.batch_norm_communicator),
        convolved(static_cast<std::size_t>(options.max_batch * convolution.output().size())),
        pooled(static_cast<std::size_t>(options.max_batch * norm_relu_pool.output().size())),
        pooled_gradient(pooled.size()) {
    const std::string prefix = "layer" + std::to_string(index + 1);
    weights = layout.tensor(prefix + ".0.weight");
    bias = layout.tensor(prefix + ".0.bias");
    gamma = layout.tensor(prefix + ".1.weight");
    beta = layout.tensor(prefix + ".1.bias");
    running_mean = layout.tensor(prefix + ".1.running_mean");
    running_var = layout.tensor(prefix + ".1.running_var");
  }

  Convolution convolution;
  NormReluPool norm_relu_pool;
  Buffer<float> convolved;  // its own gradient after the backward pass
  Buffer<float> pooled;
  Buffer<float> pooled_gradient;
  TensorInfo weights, bias, gamma, beta, running_mean, running_var;
};

class CpuReplica final : public Replica {
 public:
  explicit CpuReplica(const ReplicaOptions& options);

  void load(const Dataset& dataset) override { dataset_ = &dataset; }
  void forward_backward(std::span<const std::int32_t> rows, float gradient_scale) override;
  void all_reduce_gradients(Communicator& communicator) override;
  void update(const UpdateRule& rule) override;
  StepResult result() override { return result_; }
  EvalResult evaluate(std::span<const std::int32_t> rows) override;
  ModelState read_state() override { return state_; }
  void write_state(const ModelState& state) override;
  std::vector<float> read_gradients() override;

 private:
  std::span<const float> parameter(const TensorInfo& tensor) const;
  std::span<float> gradient(const TensorInfo& tensor);
  std::span<float> buffer(const TensorInfo& tensor);

  void take_batch(const SplitView& split, std::span<const std::int32_t> rows);
  void forward(int batch, bool is_training);
  void backward(int batch);
  std::span<const std::int32_t> labels(int batch) const {
    return {labels_.data(), static_cast<std::size_t>(batch)};
  }
  std::span<const float> logits(int batch) const {
    return {logits_.data(), static_cast<std::size_t>(batch) * static_cast<std::size_t>(network_.classes)};
  }

  Network network_;
  StateLayout layout_;
  int max_batch_;
  OneDnn context_;
  std::vector<Block> blocks_;
  Linear linear_;
  TensorInfo linear_weights_, linear_bias_;

  const Dataset* dataset_ = nullptr;
  Buffer<float> input_;  // max_batch x H x W x C
  std::vector<std::int32_t> labels_;
  Buffer<float> logits_;
  Buffer<float> logits_gradient_;

  ModelState state_;
  bool skips_nonfinite_;
  std::vector<float> buffers_before_;  // the step
  Buffer<float> gradients_;  // of all parameters, then the step's loss sum and its correct predictions
  StepResult result_;
};

CpuReplica::CpuReplica(const ReplicaOptions& options)
    : network_(options.network),
      layout_(options.network),
      max_batch_(options.max_batch),
      linear_(network_.block_input(network_.blocks.size()), network_.classes),
      linear_weights_(layout_.tensor("fc.weight")),
      linear_bias_(layout_.tensor("fc.bias")),
      input_(static_cast<std::size_t>(max_batch_ * network_.input.size())),
      labels_(static_cast<std::size_t>(max_batch_)),
      logits_(static_cast<std::size_t>(max_batch_) * static_cast<std::size_t>(network_.classes)),
      logits_gradient_(logits_.size()),
      skips_nonfinite_(options.skip_nonfinite),
      gradients_(static_cast<std::size_t>(layout_.parameter_count()) + 2) {
  omp_set_num_threads(options.threads);
  blocks_.reserve(network_.blocks.size());
  for (std::size_t i = 0; i < network_.blocks.size(); ++i) {
    blocks_.emplace_back(context_, layout_, i, options);
  }
}

std::span<const float> CpuReplica::parameter(const TensorInfo& tensor) const {
  return std::span(state_.parameters)
      .subspan(static_cast<std::size_t>(tensor.offset), static_cast<std::size_t>(tensor.size()));
}

std::span<float> CpuReplica::gradient(const TensorInfo& tensor) {
  return gradients_.span().subspan(static_cast<std::size_t>(tensor.offset),
                                   static_cast<std::size_t>(tensor.size()));
}

std::span<float> CpuReplica::buffer(const TensorInfo& tensor) {
  return std::span(state_.buffers)
      .subspan(static_cast<std::size_t>(tensor.offset), static_cast<std::size_t>(tensor.size()));
}

void CpuReplica::take_batch(const SplitView& split, std::span<const std::int32_t> rows) {
  gather_images(split.images, network_.input, rows, input_.data());
  gather_labels(split.labels, rows, labels_);
}

void CpuReplica::forward(int batch, bool is_training) {
  const float* x = input_.data();
  for (Block& block : blocks_) {
    const auto gamma = parameter(block.gamma);
    const auto beta = parameter(block.beta);
    if (batch > 0) {
      block.convolution.forward(batch, x, parameter(block.weights), parameter(block.bias),
                                block.convolved.data());
    }
    if (is_training) {
      block.norm_relu_pool.forward(batch, block.convolved.data(), gamma, beta, buffer(block.running_mean),
                                   buffer(block.running_var), block.pooled.data());
    } else {
      block.norm_relu_pool.infer(batch, block.convolved.data(), gamma, beta, buffer(block.running_mean),
                                 buffer(block.running_var), block.pooled.data());
    }
    x = block.pooled.data();
  }
  if (batch > 0) {
    linear_.forward(batch, x, parameter(linear_weights_), parameter(linear_bias_), logits_.data());
  }
}

// An empty batch goes all the way too: with synchronised batch norm the other ranks wait for this one's sums.
void CpuReplica::backward(int batch) {
  if (batch > 0) {
    linear_.backward(batch, blocks_.back().pooled.data(), logits_gradient_.data(), gradient(linear_weights_),
                     gradient(linear_bias_), blocks_.back().pooled_gradient.data());
  }
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    Block& block = blocks_[i];
    block.norm_relu_pool.backward(batch, block.convolved.data(), block.pooled_gradient.data(),
                                  parameter(block.gamma), gradient(block.gamma), gradient(block.beta));
    if (batch == 0) {
      continue;
    }
    const float* x = i == 0 ? input_.data() : blocks_[i - 1].pooled.data();
    block.convolution.backward_weights(batch, x, block.convolved.data(), gradient(block.weights));
    // Batch norm takes the mean away and with it whatever the bias adds: its gradient is 0.
    std::ranges::fill(gradient(block.bias), 0.0F);
    if (i > 0) {
      block.convolution.backward_data(batch, block.convolved.data(), parameter(block.weights),
                                      blocks_[i - 1].pooled_gradient.data());
    }
  }
}

void CpuReplica::forward_backward(std::span<const std::int32_t> rows, float gradient_scale) {
  const int batch = static_cast<int>(rows.size());
  if (batch == 0) {
    std::ranges::fill(gradients_.span(), 0.0F);
  }
  if (skips_nonfinite_) {
    result_.finite = true;
    buffers_before_ = state_.buffers;
  }
  take_batch(dataset_->train, rows);
  forward(batch, true);
  const LossSums sums =
      softmax_cross_entropy(logits(batch), labels(batch), gradient_scale, logits_gradient_.data());
  backward(batch);
  result_.local_loss_sum = sums.loss;
  const auto tail = gradients_.span().last(2);
  tail[0] = static_cast<float>(sums.loss);
  tail[1] = static_cast<float>(sums.correct);
}

void CpuReplica::all_reduce_gradients(Communicator& communicator) {
  communicator.all_reduce_sum(gradients_.span());
  const auto tail = gradients_.span().last(2);
  result_.loss_sum = communicator.size() == 1 ? result_.local_loss_sum : static_cast<double>(tail[0]);
  result_.correct = static_cast<std::int64_t>(tail[1]);
  result_.finite = result_.finite &&
                   std::ranges::all_of(gradients_.span(), [](float value) { return std::isfinite(value); });
}

void CpuReplica::update(const UpdateRule& rule) {
  if (!result_.finite) {
    if (skips_nonfinite_) {
      state_.buffers = buffers_before_;
    }
    return;
  }
  state_.moments.resize(static_cast<std::size_t>(rule.moments()),
                        std::vector<float>(state_.parameters.size()));
  apply_update(rule, gradients_.span().first(state_.parameters.size()), state_.parameters, state_.moments);
  ++state_.steps;
}

EvalResult CpuReplica::evaluate(std::span<const std::int32_t> rows) {
  EvalResult total;
  while (!rows.empty()) {
    const std::size_t size = std::min(rows.size(), static_cast<std::size_t>(max_batch_));
    const int batch = static_cast<int>(size);
    take_batch(dataset_->test, rows.first(size));
    forward(batch, false);
    const LossSums sums = softmax_cross_entropy(logits(batch), labels(batch), 0.0F, nullptr);
    total.loss_sum += sums.loss;
    total.correct += sums.correct;
    rows = rows.subspan(size);
  }
  return total;
}

void CpuReplica::write_state(const ModelState& state) {
  state_ = state;
  result_.finite = true;
}

std::vector<float> CpuReplica::read_gradients() {
  const auto parameters = gradients_.span().first(state_.parameters.size());
  return {parameters.begin(), parameters.end()};
}

}  // namespace
}  // namespace cpu

std::unique_ptr<Replica> make_cpu_replica(const ReplicaOptions& options) {
  return std::make_unique<cpu::CpuReplica>(options);
}

std::string cpu_library() {
  const dnnl_version_t* version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

}  // namespace convnet
