#pragma once

#include <mpi.h>

#include <memory>
#include <source_location>

#include "comm/progress.hpp"
#include "convnet/communicator.hpp"

namespace convnet {

// Throws Error (kInternal) with the call and MPI's own text unless `result` is MPI_SUCCESS.
void check(int result, const char* call, std::source_location where = std::source_location::current());

// True while an exception unwinds this rank. The other ranks may then be elsewhere, so destructors leave out
// what is collective, and main() ends the job by MPI_Abort.
bool is_unwinding();

// MPI_Init and MPI_Finalize. Errors of all communicators made afterwards return instead of aborting. Asks for
// MPI_THREAD_MULTIPLE, which the watchdog's thread needs to talk; all else calls MPI from the main thread
// alone. Throws Error (kUnavailable) if the MPI library cannot live even with threads that leave MPI alone.
class MpiSession {
 public:
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
};

// The MPI library's own line on itself, "Open MPI v4.1.4, ...", cut after its version.
std::string mpi_library();

// An MPI communicator of its own, so that its collectives never meet anybody else's.
class MpiCommunicator final : public Communicator {
 public:
  // A duplicate of MPI_COMM_WORLD.
  MpiCommunicator();
  // The ranks of `world` that share this rank's memory, that is, its node.
  static MpiCommunicator of_node(const MpiCommunicator& world);
  // All ranks of `other` again, for messages that never meet its own.
  static MpiCommunicator duplicate_of(const MpiCommunicator& other);

  ~MpiCommunicator() override;
  MpiCommunicator(MpiCommunicator&& other) noexcept;
  MpiCommunicator& operator=(MpiCommunicator&& other) noexcept;
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce_sum(std::span<float> values) override;
  void all_reduce_sum(std::span<double> values) override;
  void broadcast(std::span<std::byte> bytes, int root) override;
  std::vector<std::string> all_gather(const std::string& text) override;
  void barrier() override;

  MPI_Comm handle() const { return handle_; }

  // Where this rank's main thread is. Communicators made from one another share it, and mark their calls
  // there.
  Progress& progress() const { return *progress_; }

 private:
  MpiCommunicator(MPI_Comm handle, std::shared_ptr<Progress> progress);

  std::shared_ptr<Progress> progress_;
  MPI_Comm handle_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace convnet
