#include <cuda_runtime_api.h>

#include <chrono>

#include "runtime/capture.hpp"
#include "runtime/result.hpp"

namespace standin {
namespace {

constexpr int kHighestPriority = -5;

cudaError_t create_stream(cudaStream_t* handle, int priority) {
  if (device_state() != cudaSuccess) {
    return device_state();
  }
  Stream& stream = make_stream();
  stream.priority = priority;
  *handle = reinterpret_cast<cudaStream_t>(&stream);
  return cudaSuccess;
}

Event& event_of(cudaEvent_t handle, const char* call) {
  require_object("cudaEvent_t", handle, call);
  return *reinterpret_cast<Event*>(handle);
}

cudaError_t create_event(cudaEvent_t* handle, bool has_timing) {
  if (device_state() != cudaSuccess) {
    return device_state();
  }
  auto* event = new Event;  // kept for ever, so that a handle is never used twice
  event->has_timing = has_timing;
  object_made("cudaEvent_t", event);
  *handle = reinterpret_cast<cudaEvent_t>(event);
  return cudaSuccess;
}

// An event that was recorded in a capture stands for no moment: to ask about it breaks the capture.
cudaError_t refuse_captured(Event& event) {
  if (event.capture == nullptr) {
    return cudaSuccess;
  }
  if (event.capture->origin->capture == event.capture) {
    event.capture->origin->capture->is_invalid = true;
  }
  return cudaErrorCapturedEvent;
}

cudaError_t elapsed(float& milliseconds, const Event& start, const Event& end) {
  if (!start.has_timing || !end.has_timing || start.node == nullptr || end.node == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  if (!start.node->is_done || !end.node->is_done) {
    return cudaErrorNotReady;
  }
  milliseconds = std::chrono::duration<float, std::milli>(end.node->done_at - start.node->done_at).count();
  return cudaSuccess;
}

}  // namespace
}  // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return finish(must_fail("cudaStreamCreateWithFlags") ? cudaErrorUnknown : create_stream(stream, 0));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  return finish(must_fail("cudaStreamCreateWithPriority") ? cudaErrorUnknown
                                                          : create_stream(stream, priority));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (must_fail("cudaDeviceGetStreamPriorityRange")) {
    return finish(cudaErrorUnknown);
  }
  *least = 0;
  *greatest = kHighestPriority;
  return finish(device_state());
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  if (must_fail("cudaStreamDestroy")) {
    return finish(cudaErrorUnknown);
  }
  Stream& stream = stream_of(handle, "cudaStreamDestroy");
  const cudaError_t refused = refuse_while_capturing(stream);
  if (refused == cudaSuccess) {
    destroy_stream(stream);
  }
  return finish(refused);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  if (must_fail("cudaStreamSynchronize")) {
    return finish(cudaErrorUnknown);
  }
  Stream& stream = stream_of(handle, "cudaStreamSynchronize");
  const cudaError_t refused = refuse_while_capturing(stream);
  if (refused == cudaSuccess) {
    wait_for({stream.last}, "cudaStreamSynchronize");
  }
  return finish(refused);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  if (must_fail("cudaStreamQuery")) {
    return finish(cudaErrorUnknown);
  }
  Stream& stream = stream_of(handle, "cudaStreamQuery");
  if (const cudaError_t refused = refuse_while_capturing(stream); refused != cudaSuccess) {
    return finish(refused);
  }
  return finish(query(stream.last) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (must_fail("cudaStreamWaitEvent")) {
    return finish(cudaErrorUnknown);
  }
  return finish(
      wait_for_event(stream_of(stream, "cudaStreamWaitEvent"), event_of(event, "cudaStreamWaitEvent")));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (must_fail("cudaEventCreateWithFlags")) {
    return finish(cudaErrorUnknown);
  }
  return finish(create_event(event, (flags & cudaEventDisableTiming) == 0));
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return finish(must_fail("cudaEventCreate") ? cudaErrorUnknown : create_event(event, true));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (must_fail("cudaEventDestroy")) {
    return finish(cudaErrorUnknown);
  }
  object_gone("cudaEvent_t", event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  if (must_fail("cudaEventRecord")) {
    return finish(cudaErrorUnknown);
  }
  Stream& stream = stream_of(handle, "cudaEventRecord");
  const cudaError_t state = require_valid_capture(stream);
  if (state == cudaSuccess) {
    record_event(stream, event_of(event, "cudaEventRecord"));
  }
  return finish(state);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  if (must_fail("cudaEventQuery")) {
    return finish(cudaErrorUnknown);
  }
  Event& event = event_of(handle, "cudaEventQuery");
  if (const cudaError_t refused = refuse_captured(event); refused != cudaSuccess) {
    return finish(refused);
  }
  return finish(query(event.node) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  if (must_fail("cudaEventSynchronize")) {
    return finish(cudaErrorUnknown);
  }
  Event& event = event_of(handle, "cudaEventSynchronize");
  const cudaError_t refused = refuse_captured(event);
  if (refused == cudaSuccess) {
    wait_for({event.node}, "cudaEventSynchronize");
  }
  return finish(refused);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (must_fail("cudaEventElapsedTime")) {
    return finish(cudaErrorUnknown);
  }
  return finish(
      elapsed(*milliseconds, event_of(start, "cudaEventElapsedTime"), event_of(end, "cudaEventElapsedTime")));
}

}  // extern "C"
