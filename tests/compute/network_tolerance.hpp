#pragma once

#include <algorithm>
#include <cmath>

#include "compute/judge.hpp"
#include "compute/tolerance.hpp"
#include "convnet/network.hpp"

// The tolerances of a whole step. Each of its stages (convolutions, batch norms, the linear layer) rounds and
// passes on what the stages before it rounded; their errors are independent, so that their squares add up.

namespace convnet {

inline double stages_factor(const Network& network) {
  return std::sqrt(2.0 * static_cast<double>(network.blocks.size()) + 1.0);
}

// Terms of the longest sum that makes one activation or one logit.
inline double longest_sum(const Network& network) {
  std::int64_t longest = network.block_input(network.blocks.size()).size();
  for (std::size_t i = 0; i < network.blocks.size(); ++i) {
    const int kernel = network.blocks[i].kernel;
    longest = std::max<std::int64_t>(longest, network.block_input(i).channels * kernel * kernel);
  }
  return static_cast<double>(longest + 1);
}

inline double loss_tolerance(const Network& network, const judge::NetworkLoss& expected) {
  return tolerance(longest_sum(network), stages_factor(network) * expected.magnitude);
}

// For each gradient. The errors of a tensor's gradients are relative to its largest magnitude: an error of an
// earlier stage goes into all of them.
inline judge::Doubles gradient_tolerances(const Network& network, const judge::Step& expected) {
  judge::Doubles result(expected.gradients.size());
  const StateLayout layout(network);
  for (const TensorInfo& tensor : layout.tensors()) {
    if (tensor.is_parameter) {
      const auto first = expected.magnitudes.begin() + tensor.offset;
      const double largest = *std::max_element(first, first + tensor.size());
      std::fill_n(result.begin() + tensor.offset, tensor.size(),
                  random_sign_tolerance(stages_factor(network) * largest));
    }
  }
  return result;
}

// For the running statistics, of which a step changes a tenth. They are sums over a whole batch's pixels,
// which must not be added up in float32 alone: over blocks of 64 at most, and in double from there on.
inline judge::Doubles buffer_tolerances(const Network& network, const judge::State& expected) {
  constexpr double kBlock = 64.0;
  judge::Doubles magnitudes;
  for (const double value : expected.buffers) {
    magnitudes.push_back(stages_factor(network) * (0.1 + std::abs(value)));
  }
  return tolerances(kBlock, magnitudes);
}

// By how much decisions must be clear so that no rounding turns them: normalised values are of order 1.
inline double clear_margin(const Network& network) {
  return tolerance(longest_sum(network), 1.0);
}

}  // namespace convnet
