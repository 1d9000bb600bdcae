#pragma once

#include <compare>
#include <functional>
#include <map>

#include "compute/cuda/handles.hpp"

namespace convnet::cuda {

// What a captured launch depends on: launches that agree in all of it are served by one graph.
struct StepKind {
  int batch = 0;
  int moments = 0;
  bool is_adamw = false;
  bool nesterov = false;
  bool is_clipped = false;
  int steps = 1;  // one after the other

  friend auto operator<=>(const StepKind&, const StepKind&) = default;
};

// Captured CUDA graphs of whole steps, one or several. The first launch of each kind is queued as it is, so
// that libraries can make what they need; the second is captured; from then on it is one launch of a graph.
class StepGraphs {
 public:
  // Runs a step that `queue` queues on `stream` and on streams that fork from it and join it again.
  void run(cudaStream_t stream, const StepKind& kind, const std::function<void()>& queue);

 private:
  // Captures and instantiates what `queue` queues.
  static ExecutableGraph capture(cudaStream_t stream, const std::function<void()>& queue);

  std::map<StepKind, ExecutableGraph> graphs_;  // empty: its kind has been queued once
};

}  // namespace convnet::cuda
