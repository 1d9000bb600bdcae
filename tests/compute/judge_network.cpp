// The whole network, put together from the judge's operations.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "compute/judge.hpp"

namespace convnet::judge {
namespace {

Doubles slice(const Doubles& all, const TensorInfo& tensor) {
  return {all.begin() + tensor.offset, all.begin() + tensor.offset + tensor.size()};
}

void put(const Doubles& values, const TensorInfo& tensor, Doubles& all) {
  std::ranges::copy(values, all.begin() + tensor.offset);
}

Doubles absolute(Doubles values) {
  std::ranges::transform(values, values.begin(), [](double value) { return std::abs(value); });
  return values;
}

Images absolute(Images images) {
  images.values = absolute(std::move(images.values));
  return images;
}

// The sum over the images of their largest logits, all terms taken as absolute values.
double loss_magnitude(const Doubles& x, const Doubles& weights, const Doubles& bias) {
  const Doubles logits = linear_forward(absolute(x), absolute(weights), absolute(bias));
  double sum = 0.0;
  for (auto row = logits.begin(); row != logits.end(); row += static_cast<std::ptrdiff_t>(bias.size())) {
    sum += *std::max_element(row, row + static_cast<std::ptrdiff_t>(bias.size()));
  }
  return sum;
}

// The tensors of one block, cut out of a state.
struct BlockState {
  BlockState(const StateLayout& layout, std::size_t index, const State& state)
      : prefix("layer" + std::to_string(index + 1)),
        weights(slice(state.parameters, layout.tensor(prefix + ".0.weight"))),
        bias(slice(state.parameters, layout.tensor(prefix + ".0.bias"))),
        norm{.gamma = slice(state.parameters, layout.tensor(prefix + ".1.weight")),
             .beta = slice(state.parameters, layout.tensor(prefix + ".1.bias")),
             .running_mean = slice(state.buffers, layout.tensor(prefix + ".1.running_mean")),
             .running_var = slice(state.buffers, layout.tensor(prefix + ".1.running_var"))} {}

  std::string prefix;
  Doubles weights;
  Doubles bias;
  Norm norm;
};

// A block and what its forward pass kept.
struct BlockPass {
  ConvBlock block;
  BlockState state;
  Images x;
  Images convolved;
  NormReluPool pooled;
};

BlockPass forward_block(const ConvBlock& block, BlockState state, Images x) {
  Images convolved = convolution_forward(x, block, state.weights, state.bias);
  NormReluPool pooled = norm_relu_pool_forward(convolved, state.norm);
  return {block, std::move(state), std::move(x), std::move(convolved), std::move(pooled)};
}

// Adds a block's gradients to `step`; gives the gradient of its input.
Doubles backward_block(const BlockPass& pass, const StateLayout& layout, const Doubles& dy, Step& step) {
  const std::string& prefix = pass.state.prefix;
  const Norm& norm = pass.state.norm;
  const auto norm_gradients = norm_relu_pool_backward(pass.convolved, norm, pass.pooled, dy);
  const Images& dx = norm_gradients.dx;
  put(norm_gradients.dgamma, layout.tensor(prefix + ".1.weight"), step.gradients);
  put(norm_gradients.dbeta, layout.tensor(prefix + ".1.bias"), step.gradients);
  put(convolution_backward_weights(pass.x, dx, pass.block), layout.tensor(prefix + ".0.weight"),
      step.gradients);

  Doubles gamma_magnitude(norm.gamma.size());
  Doubles beta_magnitude(norm.gamma.size());
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const std::size_t c = i / static_cast<std::size_t>(pass.pooled.y.shape.pixels()) % norm.gamma.size();
    const double distance = pass.convolved.values[pass.pooled.winners[i]] - pass.pooled.mean[c];
    beta_magnitude[c] += std::abs(dy[i]);
    gamma_magnitude[c] += std::abs(dy[i] * distance) / pass.pooled.deviation[c];
  }
  put(gamma_magnitude, layout.tensor(prefix + ".1.weight"), step.magnitudes);
  put(beta_magnitude, layout.tensor(prefix + ".1.bias"), step.magnitudes);
  put(convolution_backward_weights(absolute(pass.x), absolute(dx), pass.block),
      layout.tensor(prefix + ".0.weight"), step.magnitudes);
  return convolution_backward_data(dx, pass.x.shape, pass.block, pass.state.weights).values;
}

}  // namespace

Step forward_backward(const Network& network, State& state, const Images& batch,
                      std::span<const std::int32_t> labels, double scale) {
  const StateLayout layout(network);
  Step step{.loss = {},
            .gradients = Doubles(state.parameters.size()),
            .magnitudes = Doubles(state.parameters.size())};
  std::vector<BlockPass> passes;
  Images x = batch;
  for (std::size_t i = 0; i < network.blocks.size(); ++i) {
    passes.push_back(forward_block(network.blocks[i], BlockState(layout, i, state), std::move(x)));
    const BlockPass& pass = passes.back();
    put(pass.state.norm.running_mean, layout.tensor(pass.state.prefix + ".1.running_mean"), state.buffers);
    put(pass.state.norm.running_var, layout.tensor(pass.state.prefix + ".1.running_var"), state.buffers);
    step.margin = std::min(step.margin, pass.pooled.margin);
    x = pass.pooled.y;
  }
  const Doubles weights = slice(state.parameters, layout.tensor("fc.weight"));
  const Doubles bias = slice(state.parameters, layout.tensor("fc.bias"));
  const Loss loss = softmax_cross_entropy(linear_forward(x.values, weights, bias), labels, scale);
  step.loss = {loss.sum, loss.correct, loss_magnitude(x.values, weights, bias)};
  const auto gradients = linear_backward(x.values, weights, loss.dlogits, network.classes);
  put(gradients.dweights, layout.tensor("fc.weight"), step.gradients);
  put(gradients.dbias, layout.tensor("fc.bias"), step.gradients);
  const auto magnitudes =
      linear_backward(absolute(x.values), weights, absolute(loss.dlogits), network.classes);
  put(magnitudes.dweights, layout.tensor("fc.weight"), step.magnitudes);
  put(magnitudes.dbias, layout.tensor("fc.bias"), step.magnitudes);
  Doubles dy = gradients.dx;
  for (std::size_t i = passes.size(); i-- > 0;) {
    dy = backward_block(passes[i], layout, dy, step);
  }
  return step;
}

NetworkLoss evaluate(const Network& network, const State& state, const Images& batch,
                     std::span<const std::int32_t> labels) {
  const StateLayout layout(network);
  Images x = batch;
  for (std::size_t i = 0; i < network.blocks.size(); ++i) {
    const BlockState block(layout, i, state);
    x = norm_relu_pool_infer(convolution_forward(x, network.blocks[i], block.weights, block.bias), block.norm)
            .y;
  }
  const Doubles weights = slice(state.parameters, layout.tensor("fc.weight"));
  const Doubles bias = slice(state.parameters, layout.tensor("fc.bias"));
  const Loss loss = softmax_cross_entropy(linear_forward(x.values, weights, bias), labels, 1.0);
  return {loss.sum, loss.correct, loss_magnitude(x.values, weights, bias)};
}

}  // namespace convnet::judge
