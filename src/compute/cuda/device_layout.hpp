#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "convnet/model_state.hpp"

namespace convnet::cuda {

// Where each tensor lies in the device's flat arrays: in the order of StateLayout, but each begins at a
// multiple of 256 bytes, as the libraries' fastest kernels want it. What is between tensors is 0 and stays 0.
class DeviceLayout {
 public:
  explicit DeviceLayout(const StateLayout& layout);

  // Elements from the start of the flat parameters, or buffers, to a tensor.
  std::size_t offset(const std::string& name) const;

  std::size_t parameter_size() const { return parameter_size_; }
  std::size_t buffer_size() const { return buffer_size_; }

  // From the canonical flat parameters, or buffers, to the device's, and back.
  std::vector<float> spread_parameters(const std::vector<float>& flat) const { return spread(flat, true); }
  std::vector<float> spread_buffers(const std::vector<float>& flat) const { return spread(flat, false); }
  std::vector<float> collect_parameters(const std::vector<float>& values) const {
    return collect(values, true);
  }
  std::vector<float> collect_buffers(const std::vector<float>& values) const {
    return collect(values, false);
  }

 private:
  struct Place {
    TensorInfo tensor;
    std::size_t offset;
  };
  std::vector<float> spread(const std::vector<float>& flat, bool is_parameter) const;
  std::vector<float> collect(const std::vector<float>& values, bool is_parameter) const;

  std::vector<Place> places_;
  std::size_t parameter_size_ = 0;
  std::size_t buffer_size_ = 0;
};

}  // namespace convnet::cuda
