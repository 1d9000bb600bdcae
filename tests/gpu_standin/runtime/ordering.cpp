#include "runtime/ordering.hpp"

#include <algorithm>

#include "runtime/memory.hpp"
#include "standin.hpp"

namespace standin {
namespace {

bool is_same(const Moment& a, const Moment& b) {
  return a.stream == b.stream && a.position == b.position && a.piece == b.piece;
}

bool is_before(const Moment& earlier, const Present& now) {
  if (earlier.graph_launch != 0 && earlier.graph_launch == now.moment.graph_launch) {
    return (*now.order)[now.moment.piece][earlier.piece];
  }
  return earlier.stream < now.clock->size() && earlier.position <= (*now.clock)[earlier.stream];
}

}  // namespace

void join(Clock& clock, const Clock& other) {
  clock.resize(std::max(clock.size(), other.size()));
  for (std::size_t i = 0; i < other.size(); ++i) {
    clock[i] = std::max(clock[i], other[i]);
  }
}

void note_access(Allocation& allocation, std::size_t begin, std::size_t end, bool is_written,
                 const Present& now) {
  if (begin >= end) {
    return;
  }
  for (const Access& earlier : allocation.accesses) {
    const bool collides = (is_written || earlier.is_written) && begin < earlier.end && earlier.begin < end;
    if (collides && !is_same(earlier.moment, now.moment) && !is_before(earlier.moment, now)) {
      violation("'" + *earlier.what + "' and '" + *now.what +
                "' touch the same memory and nothing orders them (bytes " +
                std::to_string(std::max(begin, earlier.begin)) + " to " +
                std::to_string(std::min(end, earlier.end)) + " of an allocation of " +
                std::to_string(allocation.size) + " bytes)");
    }
  }
  // What happened before this and lies within it need not be remembered: whatever would collide with it later
  // collides with this, or comes after both.
  std::erase_if(allocation.accesses, [&](const Access& earlier) {
    return begin <= earlier.begin && earlier.end <= end && (is_written || !earlier.is_written) &&
           !is_same(earlier.moment, now.moment) && is_before(earlier.moment, now);
  });
  allocation.accesses.push_back({begin, end, is_written, now.moment, now.what});
}

}  // namespace standin
