#include "compute/cpu/cpu_replica.hpp"

#include <omp.h>

#include <algorithm>
#include <string>

#include "compute/cpu/all_finite.hpp"
#include "compute/cpu/apply_update.hpp"
#include "compute/cpu/block.hpp"
#include "compute/cpu/buffer.hpp"
#include "compute/cpu/gather.hpp"
#include "compute/cpu/linear.hpp"
#include "compute/cpu/softmax_cross_entropy.hpp"

namespace convnet {
namespace cpu {
namespace {

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
  SoftmaxCrossEntropy softmax_cross_entropy_;

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
      softmax_cross_entropy_(logits_.size()),
      skips_nonfinite_(options.skip_nonfinite),
      gradients_(static_cast<std::size_t>(layout_.parameter_count()) + 2) {
  blocks_.reserve(network_.blocks.size());
  for (std::size_t i = 0; i < network_.blocks.size(); ++i) {
    blocks_.emplace_back(context_, layout_, i, options);
  }
}

void CpuReplica::take_batch(const SplitView& split, std::span<const std::int32_t> rows) {
  gather_images(split.images, network_.input, rows, input_.data());
  gather_labels(split.labels, rows, labels_);
}

void CpuReplica::forward(int batch, bool is_training) {
  const float* x = input_.data();
  for (Block& block : blocks_) {
    if (is_training) {
      block.forward(batch, x, state_.parameters, state_.buffers);
    } else {
      block.infer(batch, x, state_.parameters, state_.buffers);
    }
    x = block.pooled();
  }
  if (batch > 0) {
    const std::span<const float> parameters(state_.parameters);
    linear_.forward(batch, x, linear_weights_.of(parameters), linear_bias_.of(parameters), logits_.data());
  }
}

void CpuReplica::backward(int batch) {
  const auto gradients = gradients_.span().first(state_.parameters.size());
  if (batch > 0) {
    linear_.backward(batch, blocks_.back().pooled(), logits_gradient_.data(), linear_weights_.of(gradients),
                     linear_bias_.of(gradients), blocks_.back().pooled_gradient());
  }
  for (std::size_t i = blocks_.size(); i-- > 1;) {
    blocks_[i].backward(batch, blocks_[i - 1].pooled(), state_.parameters, gradients,
                        blocks_[i - 1].pooled_gradient());
  }
  blocks_.front().backward(batch, input_.data(), state_.parameters, gradients, nullptr);
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
      softmax_cross_entropy_(logits(batch), labels(batch), gradient_scale, logits_gradient_.data());
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
  result_.finite = result_.finite && all_finite(gradients_.span());
}

void CpuReplica::update(const UpdateRule& rule) {
  if (!result_.finite) {
    if (skips_nonfinite_) {
      state_.buffers = buffers_before_;
    }
    return;
  }
  state_.moments.resize(static_cast<std::size_t>(rule.moments()));
  for (std::vector<float>& moment : state_.moments) {
    moment.resize(state_.parameters.size());
  }
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
    const LossSums sums = softmax_cross_entropy_(logits(batch), labels(batch), 0.0F, nullptr);
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
  omp_set_num_threads(options.threads);  // first, since memory is placed by the threads that will use it
  return std::make_unique<cpu::CpuReplica>(options);
}

std::string cpu_library() {
  const dnnl_version_t* version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

}  // namespace convnet
