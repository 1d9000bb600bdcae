#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// The check that work which touches the same memory is ordered: by streams, events, or waits of the host.

namespace standin {

struct Allocation;

// For each stream (by number) the position up to which its work happened before.
using Clock = std::vector<std::uint32_t>;

void join(Clock& clock, const Clock& other);

// In what order a graph's pieces happen: before[i][j] if piece j happens before piece i.
using PieceOrder = std::vector<std::vector<bool>>;

// When a piece of work happens: at a position of a stream and, in a launched graph, at one of its pieces.
struct Moment {
  std::uint32_t stream = 0;
  std::uint32_t position = 0;
  std::uint64_t graph_launch = 0;  // 0: not in a graph
  std::size_t piece = 0;
};

struct Access {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_written = false;
  Moment moment;
  std::shared_ptr<const std::string> what;
};

// A moment with what happened before it.
struct Present {
  Moment moment;
  const Clock* clock = nullptr;
  const PieceOrder* order = nullptr;  // of the graph, in one
  std::shared_ptr<const std::string> what;
};

// Records that work touches bytes [begin, end) of an allocation. A violation if earlier work collides with
// it.
void note_access(Allocation& allocation, std::size_t begin, std::size_t end, bool is_written,
                 const Present& now);

}  // namespace standin
