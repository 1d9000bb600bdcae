#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "compute/cuda/handles.hpp"

namespace convnet::cuda {

// Keeps the host a few launches ahead of the device at most: a launch that finds the device's queue full
// would block where no deadline for other ranks is looked at.
class StepPace {
 public:
  static constexpr std::size_t kStride = 4;  // launches without any waiting between two with it

  StepPace() { std::ranges::generate(done_, make_event); }

  // After every launch: null, or, once in kStride launches, the event of 2 kStride launches ago, to be waited
  // for and then recorded anew.
  cudaEvent_t next() {
    const std::size_t turn = ++count_;
    return turn % kStride == 0 ? done_.at(turn / kStride % done_.size()).get() : nullptr;
  }

 private:
  std::array<Event, 2> done_;
  std::size_t count_ = 0;
};

}  // namespace convnet::cuda
