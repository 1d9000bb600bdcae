#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/ordering.hpp"
#include "standin.hpp"

// Queued work: pieces in a graph of what must be done before what, done when the host waits for it.

namespace standin {

struct Allocation;
struct Capture;
struct Graph;

// What is to be done, wherever it stands: in a stream or in a captured graph.
struct Piece {
  std::shared_ptr<const std::string> what;
  std::vector<Range> ranges;
  std::function<void()> work;
  std::vector<const void*> uses;  // device addresses among a kernel's arguments
};

struct Node {
  Piece piece;
  std::shared_ptr<const Graph> graph;               // in place of a piece's work: the launch of a graph
  std::vector<std::shared_ptr<Node>> dependencies;  // the stream's node before this one first
  Clock clock;
  std::uint32_t stream = 0;
  std::uint32_t position = 0;
  std::uint64_t serial = 0;
  bool is_done = false;
  bool was_asked_for = false;  // by a query, which the first time only says: not yet
  std::chrono::steady_clock::time_point done_at;
};

struct Stream {
  std::uint32_t number = 0;
  std::uint32_t length = 0;
  int priority = 0;
  std::shared_ptr<Node> last;  // null: nothing was ever queued
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> capture_tail;  // the pieces of the graph that the next one comes after
};

Stream& make_stream();
// What was queued on it is still done when the host waits for the device.
void destroy_stream(Stream& stream);
// The stream behind a handle. A violation if it does not live or is the default stream; `call` names who
// asks.
Stream& stream_of(cudaStream_t handle, const std::string& call);
const std::vector<Stream*>& all_streams();

// Queues a piece, or the launch of a graph; `after` is what it waits for besides the stream's own last node.
std::shared_ptr<Node> append(Stream& stream, Piece piece, std::vector<std::shared_ptr<Node>> after = {},
                             std::shared_ptr<const Graph> graph = nullptr);

// Queues a piece, or makes it part of the graph that the stream is captured into.
void enqueue_piece(cudaStream_t stream, Piece piece);

// Does all that the nodes need. A violation if something stalls for ever; `call` names who waits.
void wait_for(const std::vector<std::shared_ptr<Node>>& nodes, const char* call);
// Whether the node is done. The first question after it was queued is always answered with no.
bool query(const std::shared_ptr<Node>& node);
void wait_for_device(const char* call);

// The name of the queued, unfinished work that refers to an allocation; empty if none does.
std::string pending_use(const Allocation& allocation);

// A violation unless all that the piece refers to lives.
void require_live_memory(const Piece& piece);

// For work that finds out only as it runs what it touches: kernels.
void touched(const Range& range);

// An order in which nodes can be done: an adversary's choice. dependencies[i] are what comes before i, the
// one of its own stream first; is_main tells the nodes of the stream that is waited for. Forward, others are
// done as early as they can be; backward, as late.
std::vector<std::size_t> adversarial_order(const std::vector<std::vector<std::size_t>>& dependencies,
                                           const std::vector<bool>& is_main);

}  // namespace standin
