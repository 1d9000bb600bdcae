#include "compute/cuda/gradient_buckets.hpp"

#include <string>

#include "convnet/error.hpp"

namespace convnet::cuda {

std::vector<GradientBucket> gradient_buckets(const Network& network, const DeviceLayout& layout, int buckets,
                                             std::size_t tail) {
  const std::size_t layers = network.blocks.size() + 1;
  const auto parts = static_cast<std::size_t>(buckets);
  if (parts > layers) {
    throw Error(ExitCode::kUsage, "--buckets is " + std::to_string(buckets) +
                                      ": expected at most the network's layers, which are " +
                                      std::to_string(layers));
  }
  std::vector<GradientBucket> result;
  std::size_t end = layout.parameter_size() + tail;
  for (std::size_t part = parts; part-- > 0;) {
    const std::size_t layer = layers * part / parts;
    const std::string weight =
        layer == network.blocks.size() ? "fc.weight" : "layer" + std::to_string(layer + 1) + ".0.weight";
    const std::size_t first = layout.offset(weight);
    result.push_back({layer, first, end - first});
    end = first;
  }
  return result;
}

}  // namespace convnet::cuda
