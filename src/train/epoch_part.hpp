#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "convnet/checkpoint.hpp"
#include "convnet/sampler.hpp"

namespace convnet {

// What a run has before it of one epoch: the whole of it, or what was left when it took the epoch up. Its
// steps are counted from 0.
class EpochPart {
 public:
  EpochPart(const Sampler& sampler, const Position& start);

  const Position& start() const { return start_; }
  std::int64_t steps() const { return steps_; }

  // This rank's rows, in all and of a step.
  std::span<const std::int32_t> rows() const { return rows_; }
  std::span<const std::int32_t> rows_of(std::int64_t step) const;

  // Of all ranks.
  std::int64_t samples_of(std::int64_t step) const { return samples_[static_cast<std::size_t>(step)]; }
  float gradient_scale(std::int64_t step) const { return 1.0F / static_cast<float>(samples_of(step)); }

  // Where the run is once this step is done.
  Position after(std::int64_t step) const;

 private:
  Sampler sampler_;
  Position start_;
  std::vector<std::int32_t> rows_;
  std::int64_t steps_;
  std::vector<std::int64_t> samples_;  // by step: adding up the ranks' takes a while where there are many
};

}  // namespace convnet
