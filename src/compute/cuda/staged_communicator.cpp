#include "compute/cuda/staged_communicator.hpp"

#include <span>

namespace convnet::cuda {

void StagedCommunicator::wait(cudaEvent_t event) {
  check(cudaEventSynchronize(event), "cudaEventSynchronize");
}

void StagedCommunicator::all_reduce_sum(float* values, std::size_t count) {
  sum_on_host(values, count);
}

void StagedCommunicator::all_reduce_sum(double* values, std::size_t count) {
  sum_on_host(values, count);
}

template <class Value>
void StagedCommunicator::sum_on_host(Value* values, std::size_t count) {
  if (staging_.size() < count) {
    check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");  // the old one may still be read
    staging_ = PinnedArray<double>(count);
  }
  auto* const staged = reinterpret_cast<Value*>(staging_.data());
  const std::size_t bytes = count * sizeof(Value);
  check(cudaMemcpyAsync(staged, values, bytes, cudaMemcpyDeviceToHost, stream()), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
  world_.all_reduce_sum(std::span(staged, count));
  check(cudaMemcpyAsync(values, staged, bytes, cudaMemcpyHostToDevice, stream()), "cudaMemcpyAsync");
}

}  // namespace convnet::cuda
