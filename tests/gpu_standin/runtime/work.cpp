#include "runtime/work.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "runtime/capture.hpp"
#include "runtime/faults.hpp"
#include "runtime/memory.hpp"

namespace standin {
namespace {

struct Engine {
  std::vector<Stream*> streams;  // those that live
  std::uint32_t streams_made = 0;
  std::map<std::uint64_t, std::shared_ptr<Node>> queued;  // by serial number: not yet done
  std::uint64_t serial = 0;
  std::uint64_t graph_launches = 0;
  std::map<std::string, long> work;
  Clock host;                  // what the host has waited for
  std::vector<Range> touched;  // by the piece of work that runs
};

// Never destroyed: unfinished work outlives the program's objects. The caller owns it for ever.
Engine& engine() {
  static Engine* const only = new Engine;
  return *only;
}

// The entry point's name, which begins what work is called.
bool is_stalled_piece(const Piece& piece) {
  return is_stalled(piece.what->substr(0, piece.what->find_first_of(" (:")).c_str());
}

bool is_stalled_node(const Node& node) {
  return node.graph == nullptr ? is_stalled_piece(node.piece)
                               : std::ranges::any_of(node.graph->pieces, is_stalled_piece);
}

void note_range(const Range& range, const Present& now) {
  Allocation* allocation = allocation_of(range.first, range.bytes);
  if (allocation == nullptr) {
    violation("'" + *now.what + "' refers to memory " + describe_address(range.first));
  }
  const auto begin = static_cast<std::size_t>(static_cast<const std::byte*>(range.first) - allocation->base);
  note_access(*allocation, begin, begin + range.bytes, range.is_written, now);
}

void do_piece(const Piece& piece, Present now) {
  now.what = piece.what;
  const Working working(*piece.what);
  for (const Range& range : piece.ranges) {
    note_range(range, now);
  }
  engine().touched.clear();
  if (piece.work) {
    piece.work();
  }
  for (const Range& range : engine().touched) {
    note_range(range, now);
  }
  for (const Range& range : piece.ranges) {
    if (range.is_written) {
      mark_written(range.first, range.bytes);
    }
  }
  check_slack(*piece.what);
}

void do_graph(const Graph& graph, Present now) {
  now.moment.graph_launch = ++engine().graph_launches;
  now.order = &graph.order;
  for (const std::size_t piece : adversarial_order(graph.dependencies, graph.is_main)) {
    now.moment.piece = piece;
    do_piece(graph.pieces[piece], now);
  }
}

void do_node(Node& node) {
  const Present now{{node.stream, node.position}, &node.clock, nullptr, node.piece.what};
  if (node.graph == nullptr) {
    do_piece(node.piece, now);
  } else {
    do_graph(*node.graph, now);
  }
  node.is_done = true;
  node.done_at = std::chrono::steady_clock::now();
  node.dependencies.clear();
  node.piece.work = nullptr;
  node.graph = nullptr;
  engine().queued.erase(node.serial);
}

// The unfinished nodes that these need, themselves included, each after those it depends on.
std::vector<std::shared_ptr<Node>> needed(const std::vector<std::shared_ptr<Node>>& nodes) {
  std::map<std::uint64_t, std::shared_ptr<Node>> found;  // a node's serial number exceeds its dependencies'
  std::vector<std::shared_ptr<Node>> open = nodes;
  while (!open.empty()) {
    const std::shared_ptr<Node> node = open.back();
    open.pop_back();
    if (node != nullptr && !node->is_done && found.emplace(node->serial, node).second) {
      open.insert(open.end(), node->dependencies.begin(), node->dependencies.end());
    }
  }
  std::vector<std::shared_ptr<Node>> result;
  std::ranges::transform(found, std::back_inserter(result), [](const auto& entry) { return entry.second; });
  return result;
}

// With nothing queued, all that was done is before all that may come.
void forget_accesses() {
  if (engine().queued.empty()) {
    for_each_allocation([](Allocation& allocation) { allocation.accesses.clear(); });
  }
}

// Does what can be done of what the nodes need: stalled work, and what comes after it, stays.
void run(const std::vector<std::shared_ptr<Node>>& targets) {
  const std::vector<std::shared_ptr<Node>> nodes = needed(targets);
  if (nodes.empty()) {
    return;
  }
  std::unordered_map<const Node*, std::size_t> index;
  std::vector<std::vector<std::size_t>> dependencies(nodes.size());
  std::vector<bool> is_main(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    index[nodes[i].get()] = i;
    is_main[i] = nodes[i]->stream == targets.front()->stream;
    for (const auto& dependency : nodes[i]->dependencies) {
      if (!dependency->is_done) {
        dependencies[i].push_back(index.at(dependency.get()));
      }
    }
  }
  const OpenDeviceMemory open;
  for (const std::size_t i : adversarial_order(dependencies, is_main)) {
    const bool is_held_up =
        std::ranges::any_of(dependencies[i], [&](std::size_t d) { return !nodes[d]->is_done; });
    if (!is_held_up && !is_stalled_node(*nodes[i])) {
      do_node(*nodes[i]);
    }
  }
}

void host_waited(const Node& node) {
  join(engine().host, node.clock);
}

}  // namespace

Stream& make_stream() {
  auto* stream = new Stream;  // kept for ever, so that a handle is never used twice
  stream->number = engine().streams_made++;
  engine().streams.push_back(stream);
  object_made("cudaStream_t", stream);
  return *stream;
}

Stream& stream_of(cudaStream_t handle, const std::string& call) {
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
    violation(call + ": the default stream is used");
  }
  require_object("cudaStream_t", handle, call.c_str());
  return *reinterpret_cast<Stream*>(handle);
}

void destroy_stream(Stream& stream) {
  object_gone("cudaStream_t", &stream);
  std::erase(engine().streams, &stream);
}

const std::vector<Stream*>& all_streams() {
  return engine().streams;
}

// A GPU takes about a thousand launches; the next one blocks its caller until some are done. Behind a stalled
// sum that is for ever.
void require_room(const Piece& piece) {
  constexpr std::size_t kMost = 1000;
  if (engine().queued.size() >= kMost && is_stalled("ncclAllReduce")) {
    violation("'" + *piece.what + "' would block for ever: " + std::to_string(kMost) +
              " pieces of work are queued behind a stalled 'ncclAllReduce'");
  }
}

void count_work(const Piece& piece) {
  if (piece.work != nullptr) {  // else it only orders others
    ++engine().work[*piece.what];
  }
}

std::shared_ptr<Node> append(Stream& stream, Piece piece, std::vector<std::shared_ptr<Node>> after,
                             std::shared_ptr<const Graph> graph) {
  require_room(piece);
  auto node = std::make_shared<Node>();
  node->piece = std::move(piece);
  node->graph = std::move(graph);
  count_work(node->piece);
  if (node->graph != nullptr) {
    std::ranges::for_each(node->graph->pieces, count_work);
  }
  node->stream = stream.number;
  node->position = ++stream.length;
  node->serial = ++engine().serial;
  node->clock = engine().host;
  after.insert(after.begin(), stream.last);
  for (auto& dependency : after) {
    if (dependency != nullptr) {
      join(node->clock, dependency->clock);
      if (!dependency->is_done) {
        node->dependencies.push_back(dependency);
      }
    }
  }
  node->clock.resize(std::max<std::size_t>(node->clock.size(), stream.number + std::size_t{1}));
  node->clock[stream.number] = node->position;
  stream.last = node;
  engine().queued[node->serial] = node;
  return node;
}

void require_live_memory(const Piece& piece) {
  for (const Range& range : piece.ranges) {
    if (range.bytes > 0 && allocation_of(range.first, range.bytes) == nullptr) {
      violation("'" + *piece.what + "' refers to " + std::to_string(range.bytes) + " bytes " +
                (device_allocation(range.first) != nullptr ? describe_address(range.first)
                                                           : "that are neither device nor pinned memory"));
    }
  }
  for (const void* address : piece.uses) {
    const Allocation* allocation = device_allocation(address);
    if (allocation != nullptr && !allocation->is_live) {
      violation("'" + *piece.what + "' is given a pointer to freed memory, " + describe_address(address));
    }
  }
}

void enqueue_piece(cudaStream_t handle, Piece piece) {
  Stream& stream = stream_of(handle, *piece.what);
  std::erase_if(piece.ranges, [](const Range& range) { return range.bytes == 0; });
  require_live_memory(piece);
  if (stream.capture != nullptr) {
    capture_piece(stream, std::move(piece));
  } else {
    append(stream, std::move(piece));
  }
}

void enqueue(cudaStream_t stream, const std::string& what, std::vector<Range> ranges,
             std::function<void()> work) {
  enqueue_piece(stream, {std::make_shared<std::string>(what), std::move(ranges), std::move(work), {}});
}

void wait_for(const std::vector<std::shared_ptr<Node>>& nodes, const char* call) {
  std::vector<std::shared_ptr<Node>> targets = nodes;
  std::erase(targets, nullptr);
  run(targets);
  for (const auto& target : targets) {
    if (!target->is_done) {
      const auto left = needed({target});
      const auto stalled =
          std::ranges::find_if(left, [](const auto& node) { return is_stalled_node(*node); });
      violation(std::string(call) + " would wait for ever: '" + *(*stalled)->piece.what + "' is stalled");
    }
    host_waited(*target);
  }
  forget_accesses();
}

bool query(const std::shared_ptr<Node>& node) {
  if (node == nullptr) {
    return true;
  }
  if (!node->is_done && std::exchange(node->was_asked_for, true)) {
    run({node});
  }
  if (node->is_done) {
    host_waited(*node);
    forget_accesses();
  }
  return node->is_done;
}

void wait_for_device(const char* call) {
  std::vector<std::shared_ptr<Node>> nodes;
  for (const auto& [serial, node] : engine().queued) {
    nodes.push_back(node);
  }
  for (const Stream* stream : all_streams()) {
    nodes.push_back(stream->last);  // what a query had done counts as waited for, too
  }
  wait_for(nodes, call);
}

std::string pending_use(const Allocation& allocation) {
  const auto refers = [&](const Piece& piece) {
    return std::ranges::any_of(piece.uses,
                               [&](const void* p) { return device_allocation(p) == &allocation; }) ||
           std::ranges::any_of(
               piece.ranges, [&](const Range& r) { return allocation_of(r.first, r.bytes) == &allocation; });
  };
  for (const auto& [serial, node] : engine().queued) {
    if (refers(node->piece)) {
      return *node->piece.what;
    }
    if (node->graph != nullptr) {
      const auto piece = std::ranges::find_if(node->graph->pieces, refers);
      if (piece != node->graph->pieces.end()) {
        return *piece->what;
      }
    }
  }
  return "";
}

const std::map<std::string, long>& work() {
  return engine().work;
}

void touched(const Range& range) {
  engine().touched.push_back(range);
}

}  // namespace standin
