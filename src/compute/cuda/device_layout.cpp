#include "compute/cuda/device_layout.hpp"

#include <algorithm>

namespace convnet::cuda {

DeviceLayout::DeviceLayout(const StateLayout& layout) {
  constexpr std::size_t kAlignment = 128;  // elements: 256 bytes of bfloat16, 512 of float
  for (const TensorInfo& tensor : layout.tensors()) {
    std::size_t& size = tensor.is_parameter ? parameter_size_ : buffer_size_;
    places_.push_back({tensor, size});
    size += (static_cast<std::size_t>(tensor.size()) + kAlignment - 1) / kAlignment * kAlignment;
  }
}

std::size_t DeviceLayout::offset(const std::string& name) const {
  return std::ranges::find(places_, name, [](const Place& place) { return place.tensor.name; })->offset;
}

std::vector<float> DeviceLayout::spread(const std::vector<float>& flat, bool is_parameter) const {
  std::vector<float> values(is_parameter ? parameter_size_ : buffer_size_);
  for (const auto& [tensor, offset] : places_) {
    if (tensor.is_parameter == is_parameter) {
      std::copy_n(flat.begin() + tensor.offset, tensor.size(),
                  values.begin() + static_cast<std::ptrdiff_t>(offset));
    }
  }
  return values;
}

std::vector<float> DeviceLayout::collect(const std::vector<float>& values, bool is_parameter) const {
  std::vector<float> flat;
  for (const auto& [tensor, offset] : places_) {
    if (tensor.is_parameter == is_parameter) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(offset);
      flat.insert(flat.end(), first, first + tensor.size());
    }
  }
  return flat;
}

}  // namespace convnet::cuda
