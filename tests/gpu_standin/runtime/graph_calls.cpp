#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>

#include "runtime/capture.hpp"
#include "runtime/result.hpp"

namespace standin {
namespace {

GraphExecution& execution_of(cudaGraphExec_t handle, const char* call) {
  require_object("cudaGraphExec_t", handle, call);
  return *reinterpret_cast<GraphExecution*>(handle);
}

cudaError_t launch(GraphExecution& execution, Stream& stream) {
  if (const cudaError_t refused = refuse_while_capturing(stream); refused != cudaSuccess) {
    return refused;
  }
  std::ranges::for_each(execution.graph->pieces, require_live_memory);
  // Launches of one graph never overlap, whatever streams they are queued on.
  execution.last_launch = append(stream, {std::make_shared<std::string>("cudaGraphLaunch"), {}, {}, {}},
                                 {execution.last_launch}, execution.graph);
  return cudaSuccess;
}

}  // namespace
}  // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (must_fail("cudaStreamBeginCapture")) {
    return finish(cudaErrorUnknown);
  }
  return finish(begin_capture(stream_of(stream, "cudaStreamBeginCapture")));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* handle) {
  std::unique_ptr<Graph> graph;
  if (must_fail("cudaStreamEndCapture")) {  // the capture has ended all the same
    end_capture(stream_of(stream, "cudaStreamEndCapture"), graph);
    *handle = nullptr;
    return finish(cudaErrorUnknown);
  }
  const cudaError_t result = end_capture(stream_of(stream, "cudaStreamEndCapture"), graph);
  *handle = reinterpret_cast<cudaGraph_t>(graph.get());
  if (graph != nullptr) {
    object_made("cudaGraph_t", graph.release());
  }
  return finish(result);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  if (must_fail("cudaStreamIsCapturing")) {
    return finish(cudaErrorUnknown);
  }
  const Stream& stream = stream_of(handle, "cudaStreamIsCapturing");
  *status = stream.capture == nullptr    ? cudaStreamCaptureStatusNone
            : stream.capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* handle, cudaGraph_t graph, unsigned long long) {
  if (must_fail("cudaGraphInstantiate")) {
    return finish(cudaErrorUnknown);
  }
  require_object("cudaGraph_t", graph, "cudaGraphInstantiate");
  auto* execution = new GraphExecution;  // kept for ever, so that a handle is never used twice
  execution->graph = std::make_shared<Graph>(*reinterpret_cast<const Graph*>(graph));
  object_made("cudaGraphExec_t", execution);
  *handle = reinterpret_cast<cudaGraphExec_t>(execution);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (must_fail("cudaGraphDestroy")) {
    return finish(cudaErrorUnknown);
  }
  object_gone("cudaGraph_t", graph);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  if (must_fail("cudaGraphExecDestroy")) {
    return finish(cudaErrorUnknown);
  }
  object_gone("cudaGraphExec_t", handle);
  *reinterpret_cast<GraphExecution*>(handle) = {};  // what has been launched goes on by itself
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t execution, cudaStream_t stream) {
  if (must_fail("cudaGraphLaunch")) {
    return finish(cudaErrorUnknown);
  }
  return finish(launch(execution_of(execution, "cudaGraphLaunch"), stream_of(stream, "cudaGraphLaunch")));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t execution, cudaStream_t stream) {
  if (must_fail("cudaGraphUpload")) {
    return finish(cudaErrorUnknown);
  }
  execution_of(execution, "cudaGraphUpload");
  return finish(refuse_while_capturing(stream_of(stream, "cudaGraphUpload")));
}

}  // extern "C"
