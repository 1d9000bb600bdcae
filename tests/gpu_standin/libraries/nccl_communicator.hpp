#pragma once

#include <cuda_runtime_api.h>
#include <mpi.h>
#include <nccl.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// NCCL's communicator, over MPI.

namespace standin::libraries {

// One rank's all-reduce, as the ranks tell each other before they do it.
struct AllReduce {
  long call = 0;  // the communicator's how manieth
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t operation = ncclSum;
  bool is_captured = false;  // which must be so on all ranks or on none
};

// What is wrong with what each rank (by its place) is about to do together: empty if it is the same. The real
// library would hang or add up what does not belong together.
std::string difference(const std::vector<AllReduce>& ranks);

// What a rank says of itself when the communicator is made.
struct Introduction {
  ncclUniqueId id;
  cudaUUID_t device;
};

// What queued work keeps of a communicator, which may be gone by the time the work is done.
class Channel {
 public:
  Channel(int ranks, int rank) : ranks_(ranks), rank_(rank) {}

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  MPI_Comm* mpi() { return &mpi_; }

  // The work of an all-reduce: waits for all ranks. Nothing after an abort; a violation after the end.
  void all_reduce(const AllReduce& request, const void* send, void* receive);
  void abort() { is_aborted_ = true; }
  void end();

 private:
  void require_agreement(const AllReduce& request) const;

  int ranks_;
  int rank_;
  MPI_Comm mpi_ = MPI_COMM_NULL;  // null where MPI is not running: there is one rank
  bool is_aborted_ = false;
  bool is_ended_ = false;
};

}  // namespace standin::libraries

// What ncclComm_t points to.
struct ncclComm {
  using Launch = std::function<void()>;

  ncclComm(int ranks, int rank, const ncclUniqueId& id, bool is_blocking);

  // Begins to meet the other ranks, unless it is to stall.
  void start(bool is_stalled);
  // Goes on with it, without waiting. Not to be called once it is done.
  void advance();
  // Goes on until it is done.
  ncclResult_t wait();

  // What ncclCommGetAsyncError is to say; each time something goes on in the background.
  ncclResult_t poll();
  bool is_in_progress() const {
    return phase_ <= Phase::kIntroducing || !postponed_.empty() || is_finalizing_;
  }
  bool is_blocking() const { return is_blocking_; }

  // Puts operations on their streams, now or, every third time on a nonblocking communicator, only once
  // polled.
  ncclResult_t decide(const std::vector<Launch>& launches, const std::vector<cudaStream_t>& streams);
  long next_call() { return ++calls_; }
  ncclResult_t finalize();
  void abort();

  const std::shared_ptr<standin::libraries::Channel>& channel() const { return channel_; }

  bool was_captured = false;                         // some of its operations were
  std::vector<std::unique_ptr<char>> registrations;  // what ncclCommRegister's handles point to

 private:
  enum class Phase { kStalled, kDuplicating, kIntroducing, kReady, kFailed };

  void introduce();
  void judge_introductions();

  std::shared_ptr<standin::libraries::Channel> channel_;
  bool is_blocking_;
  Phase phase_ = Phase::kStalled;
  ncclResult_t failure_ = ncclSuccess;
  int polls_ = 0;

  MPI_Request request_ = MPI_REQUEST_NULL;
  standin::libraries::Introduction mine_{};
  std::vector<standin::libraries::Introduction> all_;

  long calls_ = 0;
  long decisions_ = 0;
  bool was_asked_ = false;  // since what is postponed or finalising is
  bool is_finalizing_ = false;
  std::vector<Launch> postponed_;
  std::vector<cudaStream_t> undecided_;
};

namespace standin::libraries {

// The text for ncclGetLastError.
std::string& nccl_last_error();

}  // namespace standin::libraries
