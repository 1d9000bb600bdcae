#include "runtime/capture.hpp"

#include <algorithm>
#include <utility>

namespace standin {
namespace {

void add_tail(std::vector<std::size_t>& tail, const std::vector<std::size_t>& more) {
  for (const std::size_t piece : more) {
    if (std::ranges::find(tail, piece) == tail.end()) {
      tail.push_back(piece);
    }
  }
}

// Whether all that was captured comes before what the origin would do next.
bool is_joined(const Capture& capture) {
  const std::vector<std::size_t>& tail = capture.origin->capture_tail;
  for (std::size_t piece = 0; piece < capture.graph.pieces.size(); ++piece) {
    const bool is_before = std::ranges::any_of(
        tail, [&](std::size_t last) { return last == piece || capture.graph.order[last][piece]; });
    if (!is_before) {
      return false;
    }
  }
  return true;
}

void leave_capture(const std::shared_ptr<Capture>& capture) {
  for (Stream* stream : all_streams()) {
    if (stream->capture == capture) {
      stream->capture = nullptr;
      stream->capture_tail.clear();
    }
  }
}

cudaError_t wait_inside_capture(Stream& stream, const Event& event) {
  if (stream.capture->is_invalid) {
    return cudaErrorStreamCaptureInvalidated;
  }
  if (event.capture != stream.capture) {
    stream.capture->is_invalid = true;
    return event.capture == nullptr ? cudaErrorStreamCaptureIsolation : cudaErrorStreamCaptureMerge;
  }
  add_tail(stream.capture_tail, event.capture_tail);
  return cudaSuccess;
}

}  // namespace

void capture_piece(Stream& stream, Piece piece) {
  if (stream.capture->is_invalid) {
    return;  // the call that invalidated it has said so, and so will the end of the capture
  }
  Graph& graph = stream.capture->graph;
  std::vector<bool> before(graph.pieces.size() + 1);
  for (const std::size_t dependency : stream.capture_tail) {
    before[dependency] = true;
    for (std::size_t i = 0; i < graph.order[dependency].size(); ++i) {
      before[i] = before[i] || graph.order[dependency][i];
    }
  }
  for (auto& each : graph.order) {
    each.resize(graph.pieces.size() + 1);
  }
  graph.pieces.push_back(std::move(piece));
  graph.dependencies.push_back(stream.capture_tail);
  graph.is_main.push_back(&stream == stream.capture->origin);
  graph.order.push_back(std::move(before));
  stream.capture_tail = {graph.pieces.size() - 1};
}

cudaError_t begin_capture(Stream& stream) {
  if (stream.capture != nullptr) {
    stream.capture->is_invalid = true;
    return cudaErrorIllegalState;
  }
  stream.capture = std::make_shared<Capture>();
  stream.capture->origin = &stream;
  stream.capture_tail.clear();
  return cudaSuccess;
}

cudaError_t end_capture(Stream& stream, std::unique_ptr<Graph>& graph) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) {
    return cudaErrorIllegalState;
  }
  if (capture->origin != &stream) {
    capture->is_invalid = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  cudaError_t result = cudaSuccess;
  if (capture->is_invalid) {
    result = cudaErrorStreamCaptureInvalidated;
  } else if (!is_joined(*capture)) {
    result = cudaErrorStreamCaptureUnjoined;
  } else {
    graph = std::make_unique<Graph>(capture->graph);
  }
  leave_capture(capture);
  return result;
}

cudaError_t wait_for_event(Stream& stream, Event& event) {
  if (stream.capture != nullptr) {
    return wait_inside_capture(stream, event);
  }
  if (event.capture == nullptr) {
    if (event.node != nullptr) {
      append(stream, {std::make_shared<std::string>("cudaStreamWaitEvent"), {}, {}, {}}, {event.node});
    }
    return cudaSuccess;
  }
  const std::shared_ptr<Capture> capture = event.capture->origin->capture;
  if (capture == nullptr || capture != event.capture) {
    return cudaErrorCapturedEvent;  // its capture has ended
  }
  if (capture->is_invalid) {
    return cudaErrorStreamCaptureInvalidated;
  }
  stream.capture = capture;
  stream.capture_tail = event.capture_tail;
  return cudaSuccess;
}

void record_event(Stream& stream, Event& event) {
  event.node = nullptr;
  event.capture = stream.capture;
  event.capture_tail = stream.capture_tail;
  if (stream.capture == nullptr) {
    event.node = append(stream, {std::make_shared<std::string>("cudaEventRecord"), {}, {}, {}});
  }
}

cudaError_t refuse_while_capturing() {
  cudaError_t result = cudaSuccess;
  for (const Stream* stream : all_streams()) {
    if (stream->capture != nullptr) {
      stream->capture->is_invalid = true;
      result = cudaErrorStreamCaptureUnsupported;
    }
  }
  return result;
}

cudaError_t refuse_while_capturing(Stream& stream) {
  if (stream.capture == nullptr) {
    return cudaSuccess;
  }
  stream.capture->is_invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t require_valid_capture(const Stream& stream) {
  return stream.capture != nullptr && stream.capture->is_invalid ? cudaErrorStreamCaptureInvalidated
                                                                 : cudaSuccess;
}

void forbid_while_capturing(const char* call) {
  for (const Stream* stream : all_streams()) {
    if (stream->capture != nullptr) {
      violation(std::string(call) + " is called while a stream is being captured");
    }
  }
}

bool is_capturing(cudaStream_t stream) {
  return stream_of(stream, "is_capturing").capture != nullptr;
}

}  // namespace standin
