#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace convnet {

// A group of ranks that compute together. Every function but rank() and size() is collective: all ranks call
// it, in the same order, with equally many elements. A failure throws Error (kInternal) with the call and the
// library's text. After all_reduce_sum and broadcast all ranks hold the same bits.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Element-wise sums over all ranks, in place.
  virtual void all_reduce_sum(std::span<float> values) = 0;
  virtual void all_reduce_sum(std::span<double> values) = 0;

  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;

  // One text of each rank, in rank order, on every rank.
  virtual std::vector<std::string> all_gather(const std::string& text) = 0;

  virtual void barrier() = 0;

 protected:
  Communicator() = default;
  Communicator(const Communicator&) = default;
  Communicator& operator=(const Communicator&) = default;
};

}  // namespace convnet
