#pragma once

#include <cstdint>
#include <span>

#include "compute/replica.hpp"
#include "convnet/error.hpp"

namespace convnet {

// A step whose loss or gradient was not finite, and whose update therefore was left out.
struct BadStep {
  int epoch = 1;
  std::int64_t step = 1;               // in the epoch, from 1
  std::int64_t global_step = 1;        // in the run, from 1
  std::span<const std::int32_t> rows;  // this rank's
  float gradient_scale = 0.0F;
};

// Does the step again, without the sum over ranks, to see on which rank it went wrong and where: the Error
// (kData, on every rank) names step, rank, loss and the first tensor, on the way back from the loss, whose
// gradient is not finite. Collective.
Error nonfinite_error(const BadStep& bad, Replica& replica, const StateLayout& layout, Communicator& world);

}  // namespace convnet
