#include "libraries/nccl_communicator.hpp"

#include <algorithm>
#include <cstring>

#include "libraries/arguments.hpp"
#include "standin.hpp"

namespace standin::libraries {
namespace {

void check_mpi(int result, const char* call) {
  if (result != MPI_SUCCESS) {
    violation(std::string("NCCL's ") + call + " failed");
  }
}

bool is_mpi_running() {
  int is_initialized = 0;
  int is_finalized = 0;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  return is_initialized != 0 && is_finalized == 0;
}

std::string text_of(const AllReduce& request) {
  return "call " + std::to_string(request.call) + " of " + std::to_string(request.count) +
         " elements of type " + std::to_string(request.type) + ", operation " +
         std::to_string(request.operation) + (request.is_captured ? ", captured" : "");
}

bool is_same(const AllReduce& a, const AllReduce& b) {
  return a.call == b.call && a.count == b.count && a.type == b.type && a.operation == b.operation &&
         a.is_captured == b.is_captured;
}

// Rank 0 adds up, and gives all the same bits. By way of the heap: MPI then never touches device memory,
// which other processes may not be able to read.
template <class Value>
void sum_over_ranks(const void* send, void* receive, std::size_t count, MPI_Datatype type, MPI_Comm mpi,
                    int rank) {
  std::vector<Value> values(count);
  std::memcpy(values.data(), send, count * sizeof(Value));
  if (mpi != MPI_COMM_NULL) {
    const void* source = rank == 0 ? MPI_IN_PLACE : values.data();
    const int length = static_cast<int>(count);
    check_mpi(MPI_Reduce(source, values.data(), length, type, MPI_SUM, 0, mpi), "MPI_Reduce");
    check_mpi(MPI_Bcast(values.data(), length, type, 0, mpi), "MPI_Bcast");
  }
  std::memcpy(receive, values.data(), count * sizeof(Value));
}

void require_world(int ranks, int rank) {
  int world_size = 1;
  int world_rank = 0;
  if (is_mpi_running()) {
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  }
  if (ranks != world_size || rank != world_rank) {
    violation("an NCCL communicator is made as rank " + std::to_string(rank) + " of " +
              std::to_string(ranks) + " by rank " + std::to_string(world_rank) + " of " +
              std::to_string(world_size));
  }
}

cudaUUID_t current_device() {
  int device = 0;
  cudaDeviceProp properties{};
  if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    violation("an NCCL communicator is made without a device");
  }
  return properties.uuid;
}

}  // namespace

std::string difference(const std::vector<AllReduce>& ranks) {
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if (!is_same(ranks[0], ranks[rank])) {
      return "ncclAllReduce: rank 0 is at " + text_of(ranks[0]) + ", rank " + std::to_string(rank) + " at " +
             text_of(ranks[rank]);
    }
  }
  return "";
}

void Channel::require_agreement(const AllReduce& request) const {
  if (mpi_ == MPI_COMM_NULL) {
    return;
  }
  // Padding is sent along: let it be zeros.
  AllReduce mine;
  std::memset(static_cast<void*>(&mine), 0, sizeof mine);
  mine.call = request.call;
  mine.count = request.count;
  mine.type = request.type;
  mine.operation = request.operation;
  mine.is_captured = request.is_captured;
  std::vector<AllReduce> all(static_cast<std::size_t>(ranks_));
  check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, mpi_),
            "MPI_Allgather");
  const std::string text = difference(all);
  if (!text.empty()) {
    violation(text);
  }
}

void Channel::all_reduce(const AllReduce& request, const void* send, void* receive) {
  if (is_aborted_) {
    return;
  }
  if (is_ended_) {
    violation("ncclAllReduce is done after its communicator was destroyed");
  }
  require_agreement(request);
  if (request.type == ncclFloat32) {
    sum_over_ranks<float>(send, receive, request.count, MPI_FLOAT, mpi_, rank_);
  } else {
    sum_over_ranks<double>(send, receive, request.count, MPI_DOUBLE, mpi_, rank_);
  }
}

void Channel::end() {
  is_ended_ = true;
  if (mpi_ != MPI_COMM_NULL && is_mpi_running()) {
    check_mpi(MPI_Comm_free(&mpi_), "MPI_Comm_free");
  }
}

std::string& nccl_last_error() {
  static std::string text;
  return text;
}

}  // namespace standin::libraries

using namespace standin::libraries;

ncclComm::ncclComm(int ranks, int rank, const ncclUniqueId& id, bool is_blocking)
    : channel_(std::make_shared<Channel>(ranks, rank)),
      is_blocking_(is_blocking),
      all_(static_cast<std::size_t>(ranks)) {
  mine_.id = id;
}

// All that MPI does here goes on in the background: ranks whose peers never come stay in progress.
void ncclComm::start(bool is_stalled) {
  if (is_stalled) {
    return;
  }
  require_world(channel_->ranks(), channel_->rank());
  mine_.device = current_device();
  if (!is_mpi_running()) {
    phase_ = Phase::kReady;
    return;
  }
  check_mpi(MPI_Comm_idup(MPI_COMM_WORLD, channel_->mpi(), &request_), "MPI_Comm_idup");
  phase_ = Phase::kDuplicating;
}

void ncclComm::introduce() {
  check_mpi(MPI_Iallgather(&mine_, sizeof mine_, MPI_BYTE, all_.data(), sizeof mine_, MPI_BYTE,
                           *channel_->mpi(), &request_),
            "MPI_Iallgather");
  phase_ = Phase::kIntroducing;
}

void ncclComm::judge_introductions() {
  phase_ = Phase::kReady;
  for (std::size_t rank = 0; rank < all_.size(); ++rank) {
    if (std::memcmp(&all_[rank].id, &all_[0].id, sizeof(ncclUniqueId)) != 0) {
      standin::violation("NCCL's ranks 0 and " + std::to_string(rank) + " were given different unique ids");
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (std::memcmp(&all_[rank].device, &all_[other].device, sizeof(cudaUUID_t)) == 0) {
        nccl_last_error() = "Duplicate GPU detected : rank " + std::to_string(other) + " and rank " +
                            std::to_string(rank) + " both on the same CUDA device";
        failure_ = ncclInvalidUsage;
        phase_ = Phase::kFailed;
      }
    }
  }
}

void ncclComm::advance() {
  if (phase_ != Phase::kDuplicating && phase_ != Phase::kIntroducing) {
    return;
  }
  int is_done = 0;
  check_mpi(MPI_Test(&request_, &is_done, MPI_STATUS_IGNORE), "MPI_Test");
  if (is_done == 0) {
    return;
  }
  if (phase_ == Phase::kDuplicating) {
    introduce();
  } else {
    judge_introductions();
  }
}

ncclResult_t ncclComm::wait() {
  while (phase_ <= Phase::kIntroducing) {
    advance();
  }
  return failure_;
}

ncclResult_t ncclComm::poll() {
  if (polls_ < 2 && !is_blocking_) {
    ++polls_;
    advance();
    return ncclInProgress;
  }
  advance();
  if (phase_ <= Phase::kIntroducing) {
    return ncclInProgress;
  }
  if (is_in_progress() && !was_asked_) {
    was_asked_ = true;
    return ncclInProgress;
  }
  is_finalizing_ = false;
  std::vector<Launch> launches;
  launches.swap(postponed_);
  std::for_each(undecided_.begin(), undecided_.end(), mark_decided);
  undecided_.clear();
  for (const Launch& launch : launches) {
    launch();
  }
  return failure_;
}

ncclResult_t ncclComm::decide(const std::vector<Launch>& launches, const std::vector<cudaStream_t>& streams) {
  if (!is_blocking_ && ++decisions_ % 3 == 0) {
    postponed_ = launches;
    undecided_ = streams;
    was_asked_ = false;
    std::for_each(streams.begin(), streams.end(), mark_undecided);
    return ncclInProgress;
  }
  for (const Launch& launch : launches) {
    launch();
  }
  return ncclSuccess;
}

ncclResult_t ncclComm::finalize() {
  if (is_blocking_) {
    return cudaDeviceSynchronize() == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
  }
  is_finalizing_ = true;
  was_asked_ = false;
  return ncclInProgress;
}

void ncclComm::abort() {
  channel_->abort();
  std::for_each(undecided_.begin(), undecided_.end(), mark_decided);
}
