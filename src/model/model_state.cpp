#include "convnet/model_state.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "convnet/random.hpp"
#include "convnet/sha256.hpp"

namespace convnet {

namespace {

// Half the width of the distribution that torch's kaiming_uniform_(a = sqrt(5)) and its bias rule amount to.
// PyTorch computes sqrt(3) * (sqrt(2 / (1 + a^2)) / sqrt(fan_in)) for the weights, which is the same float.
float initial_bound(std::int64_t fan_in) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in)));
}

}  // namespace

ModelState initial_state(const Network& network, std::uint64_t seed) {
  const StateLayout layout(network);
  ModelState state;
  state.parameters.assign(static_cast<std::size_t>(layout.parameter_count()), 0.0F);
  state.buffers.assign(static_cast<std::size_t>(layout.buffer_count()), 0.0F);
  TorchGenerator generator(seed);
  float bound = 0.0F;
  for (const TensorInfo& tensor : layout.tensors()) {
    const auto range = tensor.of(std::span(tensor.is_parameter ? state.parameters : state.buffers));
    const bool is_batch_norm = tensor.name.find(".1.") != std::string::npos;
    if (is_batch_norm) {
      const bool starts_at_one = tensor.name.ends_with(".weight") || tensor.name.ends_with(".running_var");
      std::ranges::fill(range, starts_at_one ? 1.0F : 0.0F);
      continue;
    }
    if (tensor.shape.size() > 1) {  // a bias comes behind its weights and shares their bound
      bound = initial_bound(tensor.size() / tensor.shape.front());
    }
    std::ranges::generate(range, [&] { return generator.uniform(-bound, bound); });
  }
  return state;
}

std::string weights_sha256(const StateLayout& layout, const ModelState& state) {
  static_assert(std::endian::native == std::endian::little);
  Sha256 sum;
  for (const TensorInfo& tensor : layout.tensors()) {
    const auto& values = tensor.is_parameter ? state.parameters : state.buffers;
    sum.update(std::as_bytes(tensor.of(std::span(values))));
  }
  return sum.hex();
}

}  // namespace convnet
