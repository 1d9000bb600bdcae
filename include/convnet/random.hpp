#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace convnet {

// PyTorch's generator for the CPU, number for number: torch.manual_seed(seed), Tensor.uniform_ and
// torch.randperm (aten/src/ATen/core/MT19937RNGEngine.h, DistributionTemplates.h, TensorFactories.cpp).
class TorchGenerator {
 public:
  // As torch.manual_seed: only the low 32 bits of the seed count.
  explicit TorchGenerator(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

  // A float in [low, high), as Tensor.uniform_(low, high) draws it for float32.
  float uniform(float low, float high);

  // A permutation of 0 .. count - 1, as torch.randperm draws it for count < 2^32 / 20.
  std::vector<std::int32_t> permutation(std::int32_t count);

 private:
  std::mt19937 engine_;
};

}  // namespace convnet
