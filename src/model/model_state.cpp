#include "convnet/model_state.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>

#include "convnet/error.hpp"
#include "convnet/random.hpp"
#include "convnet/sha256.hpp"

namespace convnet {

std::int64_t TensorInfo::size() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

StateLayout::StateLayout(const Network& network) {
  for (std::size_t i = 0; i < network.blocks.size(); ++i) {
    const ConvBlock& block = network.blocks[i];
    const std::string prefix = "layer" + std::to_string(i + 1);
    const int in_channels = network.block_input(i).channels;
    add(prefix + ".0.weight", {block.out_channels, in_channels, block.kernel, block.kernel}, true);
    add(prefix + ".0.bias", {block.out_channels}, true);
    add(prefix + ".1.weight", {block.out_channels}, true);
    add(prefix + ".1.bias", {block.out_channels}, true);
    add(prefix + ".1.running_mean", {block.out_channels}, false);
    add(prefix + ".1.running_var", {block.out_channels}, false);
  }
  add("fc.weight", {network.classes, network.block_input(network.blocks.size()).size()}, true);
  add("fc.bias", {network.classes}, true);
}

void StateLayout::add(std::string name, std::vector<std::int64_t> shape, bool is_parameter) {
  std::int64_t& count = is_parameter ? parameter_count_ : buffer_count_;
  tensors_.push_back({std::move(name), std::move(shape), count, is_parameter});
  count += tensors_.back().size();
}

const TensorInfo& StateLayout::tensor(const std::string& name) const {
  const auto found = std::ranges::find(tensors_, name, &TensorInfo::name);
  if (found == tensors_.end()) {
    throw Error(ExitCode::kInternal, "the network has no tensor named " + name);
  }
  return *found;
}

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
    auto& values = tensor.is_parameter ? state.parameters : state.buffers;
    const std::span<float> range(values.data() + tensor.offset, static_cast<std::size_t>(tensor.size()));
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
    sum.update(std::as_bytes(std::span(values).subspan(static_cast<std::size_t>(tensor.offset),
                                                       static_cast<std::size_t>(tensor.size()))));
  }
  return sum.hex();
}

}  // namespace convnet
