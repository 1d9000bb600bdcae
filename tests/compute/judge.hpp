#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "compute/update_rule.hpp"
#include "convnet/model_state.hpp"
#include "convnet/network.hpp"

// Every operation of the network, as naively as its definition can be written, in double precision: the judge
// of all back ends. Layouts are canonical: images N x C x H x W, weights out x in x row x column.
namespace convnet::judge {

using Doubles = std::vector<double>;

// A batch of images or activations, N x C x H x W.
struct Images {
  Images(int image_count, const ImageShape& image_shape)
      : count(image_count),
        shape(image_shape),
        values(static_cast<std::size_t>(image_count * image_shape.size())) {}

  // Where a value lies in `values`.
  std::size_t index(int image, int channel, int row, int column) const {
    return static_cast<std::size_t>(image * shape.size() + channel * shape.pixels() +
                                    std::int64_t{row} * shape.width + column);
  }

  int count;
  ImageShape shape;
  Doubles values;
};

Images convolution_forward(const Images& x, const ConvBlock& block, const Doubles& weights,
                           const Doubles& bias);
Doubles convolution_backward_weights(const Images& x, const Images& dy, const ConvBlock& block);
Images convolution_backward_data(const Images& dy, const ImageShape& input, const ConvBlock& block,
                                 const Doubles& weights);

// Batch norm's parameters and buffers, one value a channel.
struct Norm {
  Doubles gamma;
  Doubles beta;
  Doubles running_mean;
  Doubles running_var;
};

// The forward pass of batch norm, ReLU and max-pool 2 x 2, and what its backward pass needs.
struct NormReluPool {
  Images y;
  std::vector<std::size_t> winners;  // for each y, the place in x of the first maximum of its window
  Doubles mean;                      // C
  Doubles deviation;                 // C: sqrt(variance + 1e-5)
  // By how little a decision was taken: the smallest distance of a maximum from 0, or of a positive maximum
  // from a smaller value of its window. A computation that is less exact than that may decide otherwise.
  double margin = std::numeric_limits<double>::infinity();
};

// With the statistics of the batch, which step the running ones: x must not be empty.
NormReluPool norm_relu_pool_forward(const Images& x, Norm& norm);
// With the running statistics.
NormReluPool norm_relu_pool_infer(const Images& x, const Norm& norm);

struct NormReluPoolGradients {
  Images dx;
  Doubles dgamma;
  Doubles dbeta;
};
NormReluPoolGradients norm_relu_pool_backward(const Images& x, const Norm& norm, const NormReluPool& forward,
                                              const Doubles& dy);

// x is N x inputs, weights are outputs x inputs; the result is N x outputs.
Doubles linear_forward(const Doubles& x, const Doubles& weights, const Doubles& bias);

struct LinearGradients {
  Doubles dweights;
  Doubles dbias;
  Doubles dx;
};
LinearGradients linear_backward(const Doubles& x, const Doubles& weights, const Doubles& dy, int outputs);

// Of logits, N x classes, N being labels.size().
struct Loss {
  double sum = 0.0;          // of -log softmax(logits)[label]
  std::int64_t correct = 0;  // samples whose first greatest logit is the label's
  Doubles dlogits;           // of scale x sum
};
Loss softmax_cross_entropy(const Doubles& logits, std::span<const std::int32_t> labels, double scale);

// One update as UpdateRule has it. `moments` may be empty before the first step.
void apply_update(const UpdateRule& rule, const Doubles& gradients, Doubles& parameters,
                  std::vector<Doubles>& moments);

// ModelState in doubles.
struct State {
  explicit State(const ModelState& state)
      : parameters(state.parameters.begin(), state.parameters.end()),
        buffers(state.buffers.begin(), state.buffers.end()) {}

  Doubles parameters;
  Doubles buffers;
};

// The loss of the whole network over a batch.
struct NetworkLoss {
  double sum = 0.0;
  std::int64_t correct = 0;
  // The sum over the samples of their largest logit, all terms of it taken as absolute values: what the
  // rounding errors of the loss are relative to.
  double magnitude = 0.0;
};

struct Step {
  NetworkLoss loss;
  Doubles gradients;   // of scale x loss.sum, as the parameters lie in State
  Doubles magnitudes;  // for each gradient, the sum of the absolute values of its terms
  double margin = std::numeric_limits<double>::infinity();  // the smallest of all blocks
};

// Forward and backward through the whole network; the running statistics in `state` take their step.
Step forward_backward(const Network& network, State& state, const Images& batch,
                      std::span<const std::int32_t> labels, double scale);

// Forward with the running statistics.
NetworkLoss evaluate(const Network& network, const State& state, const Images& batch,
                     std::span<const std::int32_t> labels);

}  // namespace convnet::judge
