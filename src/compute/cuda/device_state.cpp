#include "compute/cuda/device_state.hpp"

namespace convnet::cuda {

DeviceState::DeviceState(const DeviceLayout& layout)
    : parameters_(layout.parameter_size()),
      buffers_(layout.buffer_size()),
      moments_{DeviceArray<float>(layout.parameter_size()), DeviceArray<float>(layout.parameter_size())} {}

void DeviceState::keep_moments(cudaStream_t stream, std::size_t count) {
  for (std::size_t i = moment_count_; i < count; ++i) {
    clear(stream, moments_.at(i).data(), moments_.at(i).size());
  }
  moment_count_ = count;
}

UpdateArrays DeviceState::update_arrays(const float* gradients, int moments) const {
  return {static_cast<std::int64_t>(parameters_.size()), gradients, parameters_.data(),
          moments > 0 ? moments_[0].data() : nullptr, moments > 1 ? moments_[1].data() : nullptr};
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
