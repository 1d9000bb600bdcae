#pragma once

#include <nccl.h>

#include <chrono>
#include <optional>

#include "compute/cuda/device_communicator.hpp"
#include "convnet/error.hpp"

namespace convnet::cuda {

// Sums by NCCL. Rank 0 makes the unique id, and `world` broadcasts it.
class NcclCommunicator final : public DeviceCommunicator {
 public:
  // Throws Error (kUnavailable) if not all ranks are there after `timeout`.
  NcclCommunicator(Communicator& world, std::chrono::seconds timeout, const Registration& registration);
  // Graphs that its sums are part of must be gone.
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Throws Error (kUnavailable) if other ranks let this one wait for longer than the timeout, and Error
  // (kInternal) if NCCL reports an error meanwhile. The communicator is useless afterwards.
  void wait(cudaEvent_t event) override;
  bool can_be_captured() const override { return true; }

 private:
  void all_reduce_sum(float* values, std::size_t count) override;
  void all_reduce_sum(double* values, std::size_t count) override;

  void connect(Communicator& world);
  // Waits for a call that has only begun; `result` becomes what came of it. False if it has not ended in
  // time.
  bool ends_in_time(ncclResult_t& result);
  // The same, and throws unless it ended well and in time.
  void settle(ncclResult_t result, const char* call);
  // Throws `error`, and remembers it as what the communicator is to be given up for.
  [[noreturn]] void fail(const Error& error);
  // Gives the communicator up, in bounded time.
  void abort();

  int rank_;
  int size_;
  std::chrono::seconds timeout_;
  ncclComm_t handle_ = nullptr;
  void* registration_ = nullptr;
  std::optional<Error> failure_;
};

}  // namespace convnet::cuda
