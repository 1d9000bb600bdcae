#pragma once

#include <cstddef>
#include <memory>

#include "compute/cuda/handles.hpp"
#include "compute/cuda_options.hpp"
#include "convnet/communicator.hpp"

namespace convnet::cuda {

// Sums over the ranks, in place, of what lies in device memory, on a stream of its own beside the one that
// computes. Every function is collective: all ranks call it, in the same order, with equally many values.
class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;
  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;

  // Queues a sum of what `compute` has computed by now. `compute` may go on, but leaves the values alone
  // until finish().
  template <class Value>
  void start_sum(cudaStream_t compute, Value* values, std::size_t count) {
    order(compute, started_.get(), stream_.get());
    all_reduce_sum(values, count);
  }

  // What `compute` gets from now on comes after all sums started so far.
  void finish(cudaStream_t compute) { order(stream_.get(), finished_.get(), compute); }

  // Waits for an event. Throws Error if that depends on other ranks and they do not come, or if communication
  // fails meanwhile.
  virtual void wait(cudaEvent_t event) = 0;

  // Whether sums can be part of a captured graph.
  virtual bool can_be_captured() const = 0;

 protected:
  DeviceCommunicator() : stream_(make_stream()), started_(make_event()), finished_(make_event()) {}

  cudaStream_t stream() const { return stream_.get(); }

 private:
  virtual void all_reduce_sum(float* values, std::size_t count) = 0;
  virtual void all_reduce_sum(double* values, std::size_t count) = 0;

  Stream stream_;
  Event started_;
  Event finished_;
};

// Memory that is summed often and that a communicator may get to know beforehand.
struct Registration {
  void* memory = nullptr;
  std::size_t bytes = 0;
};

// The communicator that the options ask for, between the ranks of `world`, which outlives it. Collective.
// Throws Error: kUsage if the options ask for a graph of sums that cannot be captured, kUnavailable if the
// ranks do not find one another in time.
std::unique_ptr<DeviceCommunicator> make_device_communicator(Communicator& world, const CudaOptions& options,
                                                             const Registration& registration);

}  // namespace convnet::cuda
