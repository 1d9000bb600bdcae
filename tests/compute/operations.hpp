#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compute/replica.hpp"
#include "compute/update_rule.hpp"
#include "convnet/network.hpp"

namespace convnet {

using Floats = std::vector<float>;

// What a pass of batch norm, ReLU and max-pool 2 x 2 in training gives, forward and backward.
struct NormReluPoolPass {
  Floats y, running_mean, running_var, dx, dgamma, dbeta;
};

// What goes into it. Activations are `batch` x shape, the others one value a channel.
struct NormReluPoolInput {
  int batch = 0;
  ImageShape shape;
  Floats x, gamma, beta, running_mean, running_var;
};

// What a linear layer gives, forward and backward.
struct LinearPass {
  Floats y, dweights, dbias, dx;
};

// The loss of a batch and its gradient.
struct LossPass {
  double loss_sum = 0.0;
  std::int64_t correct = 0;
  Floats dlogits;
};

// The operations of a back end, one by one, on the host's memory in canonical layouts (images N x C x H x W,
// weights out x in x row x column). Tests run over every back end through this: each has an adapter that
// rearranges, calls its own code, and rearranges back.
class Operations {
 public:
  virtual ~Operations() = default;

  virtual Floats convolution_forward(int batch, const ImageShape& input, const ConvBlock& block,
                                     const Floats& x, const Floats& weights, const Floats& bias) = 0;
  virtual Floats convolution_backward_weights(int batch, const ImageShape& input, const ConvBlock& block,
                                              const Floats& x, const Floats& dy) = 0;
  virtual Floats convolution_backward_data(int batch, const ImageShape& input, const ConvBlock& block,
                                           const Floats& dy, const Floats& weights) = 0;

  virtual NormReluPoolPass norm_relu_pool(const NormReluPoolInput& input, const Floats& dy) = 0;
  virtual Floats norm_relu_pool_infer(const NormReluPoolInput& input) = 0;  // y

  // x is batch x input, weights are bias.size() x input.
  virtual LinearPass linear(int batch, const ImageShape& input, const Floats& x, const Floats& weights,
                            const Floats& bias, const Floats& dy) = 0;

  virtual LossPass softmax_cross_entropy(const Floats& logits, std::span<const std::int32_t> labels,
                                         float scale) = 0;

  // Images `rows` of `images`, each of this shape, in [0, 1].
  virtual Floats gather_images(std::span<const std::uint8_t> images, const ImageShape& shape,
                               std::span<const std::int32_t> rows) = 0;

  virtual void apply_update(const UpdateRule& rule, const Floats& gradients, Floats& parameters,
                            std::vector<Floats>& moments) = 0;
};

// A way to compute that all tests of operations and replicas run over.
struct Backend {
  std::string name;                        // letters, digits and _
  std::optional<std::string> unavailable;  // why its tests must be skipped here, if they must
  std::function<std::unique_ptr<Operations>()> make_operations;
  std::function<std::unique_ptr<Replica>(ReplicaOptions)> make_replica;
};

// All back ends that this build knows.
std::vector<Backend> all_backends();

Backend cpu_backend(int threads);

// The CPU back end on one thread, held to each instruction set that Highway compiles for and this processor
// has, but for the best, which cpu_backend() takes. oneDNN's own kernels stay those of the processor.
std::vector<Backend> cpu_backends_of_lesser_instruction_sets();

}  // namespace convnet
