#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/work.hpp"

// Capturing streams into graphs, by the rules of the real runtime.

namespace standin {

// What was captured. It does not change once the capture has ended.
struct Graph {
  std::vector<Piece> pieces;
  std::vector<std::vector<std::size_t>> dependencies;  // for each piece those right before it
  std::vector<bool> is_main;                           // on the stream on which the capture began
  PieceOrder order;                                    // for each piece all those before it
};

struct Capture {
  Stream* origin = nullptr;
  Graph graph;
  bool is_invalid = false;
};

struct Event {
  bool has_timing = true;
  std::shared_ptr<Node> node;              // null: not yet recorded, or recorded in a capture
  std::shared_ptr<const Capture> capture;  // the capture that it was recorded in
  std::vector<std::size_t> capture_tail;
};

struct GraphExecution {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<Node> last_launch;
};

void capture_piece(Stream& stream, Piece piece);

cudaError_t begin_capture(Stream& stream);
// Ends the capture, whether or not it succeeds. `graph` is left null where it does not.
cudaError_t end_capture(Stream& stream, std::unique_ptr<Graph>& graph);

// Makes what comes next on the stream wait for the event; the stream may join the event's capture by it.
cudaError_t wait_for_event(Stream& stream, Event& event);
void record_event(Stream& stream, Event& event);

// For calls that a capture forbids: cudaSuccess if nothing is captured, else the captures concerned become
// invalid.
cudaError_t refuse_while_capturing();                // whatever stream is captured
cudaError_t refuse_while_capturing(Stream& stream);  // this stream
// For calls that queue: an error if the stream's capture is invalid.
cudaError_t require_valid_capture(const Stream& stream);

}  // namespace standin
