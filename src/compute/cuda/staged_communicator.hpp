#pragma once

#include "compute/cuda/buffer.hpp"
#include "compute/cuda/device_communicator.hpp"

namespace convnet::cuda {

// Sums by way of pinned host memory and the host's own communicator: for ranks that share a GPU, which NCCL
// refuses. The host waits for each sum.
class StagedCommunicator final : public DeviceCommunicator {
 public:
  explicit StagedCommunicator(Communicator& world) : world_(world) {}

  void wait(cudaEvent_t event) override;
  bool can_be_captured() const override { return false; }

 private:
  void all_reduce_sum(float* values, std::size_t count) override;
  void all_reduce_sum(double* values, std::size_t count) override;

  template <class Value>
  void sum_on_host(Value* values, std::size_t count);

  Communicator& world_;
  PinnedArray<double> staging_;
};

}  // namespace convnet::cuda
