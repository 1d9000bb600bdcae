#include "compute/cuda/step_graphs.hpp"

namespace convnet::cuda {

void StepGraphs::run(cudaStream_t stream, const StepKind& kind, const std::function<void()>& queue) {
  const auto [place, is_new] = graphs_.try_emplace(kind);
  if (is_new) {
    queue();
    return;
  }
  if (!place->second) {
    place->second = capture(stream, queue);
  }
  check(cudaGraphLaunch(place->second.get(), stream), "cudaGraphLaunch");
}

ExecutableGraph StepGraphs::capture(cudaStream_t stream, const std::function<void()>& queue) {
  // Other threads, NCCL's among them, may go on calling what a capture does not allow.
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    queue();
  } catch (...) {
    cudaGraph_t unfinished = nullptr;
    cudaStreamEndCapture(stream, &unfinished);
    const Graph owner(unfinished);
    throw;
  }
  const Graph graph = make_handle<Graph>("cudaStreamEndCapture", [stream](cudaGraph_t* captured) {
    return cudaStreamEndCapture(stream, captured);
  });
  return make_handle<ExecutableGraph>("cudaGraphInstantiate", [&graph](cudaGraphExec_t* executable) {
    return cudaGraphInstantiate(executable, graph.get(), 0);
  });
}

}  // namespace convnet::cuda
