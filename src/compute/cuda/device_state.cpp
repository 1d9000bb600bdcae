#include "compute/cuda/device_state.hpp"

namespace convnet::cuda {

DeviceState::DeviceState(const DeviceLayout& layout, bool may_skip)
    : parameters_(layout.parameter_size()),
      buffers_(layout.buffer_size()),
      buffers_before_(may_skip ? layout.buffer_size() : 0),
      moments_{DeviceArray<float>(layout.parameter_size()), DeviceArray<float>(layout.parameter_size())} {}

void DeviceState::keep_moments(cudaStream_t stream, std::size_t count) {
  for (std::size_t i = moment_count_; i < count; ++i) {
    clear(stream, moments_.at(i).data(), moments_.at(i).size());
  }
  moment_count_ = count;
}

void DeviceState::begin_step(cudaStream_t stream, Score* score) {
  if (buffers_before_.size() > 0) {
    begin_skippable(stream, buffers_.data(), static_cast<std::int64_t>(buffers_.size()),
                    buffers_before_.data(), score);
  }
}

void DeviceState::update(cudaStream_t stream, const StepKind& kind, const float* gradients,
                         const StepRecord* record, Score* score) {
  const UpdateArrays arrays{static_cast<std::int64_t>(parameters_.size()), gradients, parameters_.data(),
                            kind.moments > 0 ? moments_[0].data() : nullptr,
                            kind.moments > 1 ? moments_[1].data() : nullptr};
  if (kind.is_clipped) {
    set_clip_factor(stream, arrays.gradients, arrays.count, record, score);
  }
  if (kind.is_adamw) {
    apply_adamw(stream, arrays, record, score);
  } else {
    apply_sgd(stream, arrays, kind.nesterov, record, score);
  }
  if (buffers_before_.size() > 0) {
    end_skippable(stream, buffers_before_.data(), static_cast<std::int64_t>(buffers_.size()), buffers_.data(),
                  score);
  }
}

void DeviceState::write(cudaStream_t stream, const DeviceLayout& layout, const ModelState& state) {
  const auto put = [stream](const std::vector<float>& values, const DeviceArray<float>& to) {
    upload(stream, std::span(values), to.data());
  };
  put(layout.spread_parameters(state.parameters), parameters_);
  put(layout.spread_buffers(state.buffers), buffers_);
  moment_count_ = state.moments.size();
  for (std::size_t i = 0; i < moment_count_; ++i) {
    put(layout.spread_parameters(state.moments[i]), moments_.at(i));
  }
}

}  // namespace convnet::cuda
