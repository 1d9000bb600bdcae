#pragma once

#include <mpi.h>

#include <cstddef>
#include <span>

#include "comm/mpi_communicator.hpp"

namespace convnet {

// Memory that all ranks of a node share. Everything but memory() is collective over the node.
class SharedWindow {
 public:
  // All ranks give the same number of bytes. Throws Error (kInternal) if there is not enough shared memory.
  SharedWindow(const MpiCommunicator& node, std::size_t bytes);
  ~SharedWindow();
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  // The same bytes on every rank, at this rank's own address.
  std::span<std::byte> memory() const { return memory_; }

  // Waits for all ranks; what any of them wrote before, all see afterwards.
  void synchronise() const;

 private:
  Progress& progress_;  // of the node's communicator, which outlives the window
  MPI_Win window_ = MPI_WIN_NULL;
  std::span<std::byte> memory_;
};

}  // namespace convnet
