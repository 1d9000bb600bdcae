#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "compute/cuda/handles.hpp"

namespace convnet::cuda {

// Keeps the host a few steps ahead of the device at most: a launch that finds the device's queue full would
// block where no deadline for other ranks is looked at.
class StepPace {
 public:
  StepPace() { std::ranges::generate(done_, make_event); }

  // The event of some steps ago, to be waited for, and then recorded at the end of this one.
  cudaEvent_t next() { return done_.at(count_++ % done_.size()).get(); }

 private:
  std::array<Event, 8> done_;
  std::size_t count_ = 0;
};

}  // namespace convnet::cuda
