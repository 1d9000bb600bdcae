#pragma once

#include <cstdint>
#include <span>

#include "compute/cuda/buffer.hpp"

namespace convnet::cuda {

// Queues a copy of values from the host to device memory: they must stay as they are until it is done.
template <class Value>
void upload(cudaStream_t stream, std::span<const Value> values, Value* to) {
  if (!values.empty()) {
    check(cudaMemcpyAsync(to, values.data(), values.size_bytes(), cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync");
  }
}

// Fills device memory with zero bytes.
template <class Value>
void clear(cudaStream_t stream, Value* values, std::size_t count) {
  check(cudaMemsetAsync(values, 0, count * sizeof(Value), stream), "cudaMemsetAsync");
}

// A list of row numbers in device memory.
class RowList {
 public:
  // Replaces the list. What is queued on the stream still sees the old one.
  void set(cudaStream_t stream, std::span<const std::int32_t> rows) {
    if (values_.size() < rows.size()) {
      values_ = DeviceArray<std::int32_t>(rows.size());
    }
    upload(stream, rows, values_.data());
  }

  const std::int32_t* data() const { return values_.data(); }

 private:
  DeviceArray<std::int32_t> values_;
};

}  // namespace convnet::cuda
