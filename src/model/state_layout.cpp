#include <algorithm>
#include <functional>
#include <numeric>

#include "convnet/error.hpp"
#include "convnet/model_state.hpp"

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

}  // namespace convnet
