#pragma once

#include <array>
#include <cstdint>

#include "compute/cuda/device_layout.hpp"
#include "compute/cuda/flat_kernels.hpp"
#include "compute/cuda/step_graphs.hpp"
#include "compute/cuda/transfer.hpp"
#include "convnet/model_state.hpp"

namespace convnet::cuda {

// What training changes and a checkpoint keeps, in device memory; but for the steps done, which the score
// counts.
class DeviceState {
 public:
  // `may_skip`: a step that is not finite changes nothing, not even the buffers.
  DeviceState(const DeviceLayout& layout, bool may_skip);

  float* parameters() const { return parameters_.data(); }
  std::size_t parameter_bytes() const { return parameters_.bytes(); }
  float* buffers() const { return buffers_.data(); }

  // From now on so many moments count. Those that were not there before start at 0.
  void keep_moments(cudaStream_t stream, std::size_t count);

  // Comes before all that a step changes, and the update after it.
  void begin_step(cudaStream_t stream, Score* score);
  void update(cudaStream_t stream, const StepKind& kind, const float* gradients, const StepRecord* record,
              Score* score);

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
  DeviceArray<float> buffers_before_;  // the step, where it may be skipped; else empty
  std::array<DeviceArray<float>, 2> moments_;
  std::size_t moment_count_ = 0;
};

}  // namespace convnet::cuda
