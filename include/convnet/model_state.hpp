#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convnet/network.hpp"

namespace convnet {

// One tensor of the state dict and the place of its values.
struct TensorInfo {
  std::string name;                 // PyTorch's name, for example "layer1.0.weight"
  std::vector<std::int64_t> shape;  // convolution weights: out, in, row, column; linear weights: out, in
  std::int64_t offset = 0;          // into the flat parameters, or the flat buffers
  bool is_parameter = true;         // false: a batch-norm buffer (running mean or running variance)

  std::int64_t size() const;

  // Its values among the flat ones, or whatever lies as they do.
  std::span<const float> of(std::span<const float> flat) const {
    return flat.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size()));
  }
  std::span<float> of(std::span<float> flat) const {
    return flat.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size()));
  }
};

// Where each tensor of a network lies in two flat float32 arrays, parameters and buffers, laid out in the
// order in which PyTorch registers them. All-reduce, optimiser, hash and checkpoint see the flat arrays
// alone.
class StateLayout {
 public:
  explicit StateLayout(const Network& network);

  // All tensors in the order of torch's state_dict(), but for num_batches_tracked.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo& tensor(const std::string& name) const;  // throws Error (kInternal) if there is none

  std::int64_t parameter_count() const { return parameter_count_; }
  std::int64_t buffer_count() const { return buffer_count_; }

 private:
  void add(std::string name, std::vector<std::int64_t> shape, bool is_parameter);

  std::vector<TensorInfo> tensors_;
  std::int64_t parameter_count_ = 0;
  std::int64_t buffer_count_ = 0;
};

// All that training changes, in the host's memory, in the canonical layout of StateLayout, whatever back end
// it came from or goes to.
struct ModelState {
  std::vector<float> parameters;
  std::vector<float> buffers;
  std::vector<std::vector<float>>
      moments;             // of the optimiser: none, momentum, or AdamW's two; as the parameters
  std::int64_t steps = 0;  // updates done; torch's num_batches_tracked

  friend bool operator==(const ModelState&, const ModelState&) = default;
};

// The state before the first step, bit for bit as PyTorch has it after torch.manual_seed(seed) and building
// the tutorial's ConvNet: weights and biases from U(-1/sqrt(fan_in), 1/sqrt(fan_in)) in the order of
// registration, batch norm's scale 1, shift 0, running mean 0, running variance 1. No moments.
ModelState initial_state(const Network& network, std::uint64_t seed);

// SHA-256 of the values of all tensors in the order of the state dict, as little-endian float32.
std::string weights_sha256(const StateLayout& layout, const ModelState& state);

}  // namespace convnet
