#pragma once

#include <array>
#include <cstdint>

#include "compute/cuda/device_layout.hpp"
#include "compute/cuda/flat_kernels.hpp"
#include "compute/cuda/transfer.hpp"
#include "convnet/model_state.hpp"

namespace convnet::cuda {

// What training changes and a checkpoint keeps, in device memory; but for the steps done, which the score
// counts.
class DeviceState {
 public:
  explicit DeviceState(const DeviceLayout& layout);

  float* parameters() const { return parameters_.data(); }
  std::size_t parameter_bytes() const { return parameters_.bytes(); }
  float* buffers() const { return buffers_.data(); }
  std::int64_t buffer_count() const { return static_cast<std::int64_t>(buffers_.size()); }

  // From now on so many moments count. Those that were not there before start at 0.
  void keep_moments(cudaStream_t stream, std::size_t count);

  // What an update of so many moments works on.
  UpdateArrays update_arrays(const float* gradients, int moments) const;

  // `download(values, count)` copies device memory into a vector.
  template <class Download>
  ModelState read(const DeviceLayout& layout, const Download& download) const {
    ModelState state{
        .parameters = layout.collect_parameters(download(parameters_.data(), parameters_.size())),
        .buffers = layout.collect_buffers(download(buffers_.data(), buffers_.size())),
        .moments = {}};
    for (std::size_t i = 0; i < moment_count_; ++i) {
      state.moments.push_back(
          layout.collect_parameters(download(moments_.at(i).data(), moments_.at(i).size())));
    }
    return state;
  }

  void write(cudaStream_t stream, const DeviceLayout& layout, const ModelState& state);

 private:
  DeviceArray<float> parameters_;
  DeviceArray<float> buffers_;
  std::array<DeviceArray<float>, 2> moments_;
  std::size_t moment_count_ = 0;
};

}  // namespace convnet::cuda
