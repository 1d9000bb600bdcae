#pragma once

#include <nccl.h>

#include <chrono>
#include <string>

#include "compute/cuda/device_communicator.hpp"
#include "convnet/error.hpp"

namespace convnet::cuda {

// Sums by NCCL. Rank 0 makes the unique id, and `world` broadcasts it.
class NcclCommunicator final : public DeviceCommunicator {
 public:
  // Throws Error (kUnavailable) if not all ranks are there after `timeout`.
  NcclCommunicator(Communicator& world, std::chrono::seconds timeout, const Registration& registration);
  ~NcclCommunicator() override;

  // Throws Error (kUnavailable) if other ranks let this one wait for longer than the timeout, and Error
  // (kInternal) if NCCL reports an error meanwhile. The communicator is useless afterwards.
  void wait(cudaStream_t compute) override;
  bool can_be_captured() const override { return true; }

 private:
  void all_reduce_sum(float* values, std::size_t count) override;
  void all_reduce_sum(double* values, std::size_t count) override;

  void connect(Communicator& world);
  // Waits for a call that has only begun.
  void settle(ncclResult_t result, const char* call);
  // Gives the communicator up, in bounded time, and throws.
  [[noreturn]] void give_up(const Error& error);
  void abort(const std::string& reason);

  int rank_;
  int size_;
  std::chrono::seconds timeout_;
  ncclComm_t handle_ = nullptr;
  void* registration_ = nullptr;
};

}  // namespace convnet::cuda
