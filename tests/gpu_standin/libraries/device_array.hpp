#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "libraries/values.hpp"

// What the tests of the libraries need of the runtime: a stream, and arrays on the device.
namespace standin::libraries {

class Stream {
 public:
  Stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  ~Stream() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator cudaStream_t() const { return stream_; }
  void wait() const { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

 private:
  cudaStream_t stream_ = nullptr;
};

template <class Value>
class DeviceArray {
 public:
  DeviceArray(const Stream& stream, const std::vector<Value>& values)
      : stream_(&stream), size_(values.size()) {
    EXPECT_EQ(cudaMalloc(&memory_, bytes()), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(memory_, values.data(), bytes(), cudaMemcpyHostToDevice, stream), cudaSuccess);
    stream.wait();
  }
  DeviceArray(const Stream& stream, std::size_t size) : DeviceArray(stream, std::vector<Value>(size)) {}
  ~DeviceArray() {
    stream_->wait();
    cudaFree(memory_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  Value* get() const { return static_cast<Value*>(memory_); }
  std::size_t bytes() const { return size_ * sizeof(Value); }

  // Waits for the stream first.
  std::vector<Value> values() const {
    std::vector<Value> result(size_);
    EXPECT_EQ(cudaMemcpyAsync(result.data(), memory_, bytes(), cudaMemcpyDeviceToHost, *stream_),
              cudaSuccess);
    stream_->wait();
    return result;
  }

 private:
  const Stream* stream_;
  std::size_t size_;
  void* memory_ = nullptr;
};

using Floats = DeviceArray<float>;
using Halves = DeviceArray<std::uint16_t>;

inline std::vector<float> random_values(std::size_t count, unsigned int seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> distribution(-1.0F, 1.0F);
  std::vector<float> values(count);
  for (float& value : values) {
    value = distribution(generator);
  }
  return values;
}

inline std::vector<std::uint16_t> to_halves(const std::vector<float>& values) {
  std::vector<std::uint16_t> result;
  for (const float value : values) {
    result.push_back(to_bfloat16(value));
  }
  return result;
}

inline std::vector<float> from_halves(const std::vector<std::uint16_t>& values) {
  std::vector<float> result;
  for (const std::uint16_t value : values) {
    result.push_back(from_bfloat16(value));
  }
  return result;
}

// Sums of `terms` products of values in [-1, 1], in float: their rounding errors behave like random ones.
inline double tolerance_of(std::size_t terms) {
  constexpr double kUnitRoundoff = 0x1p-24;
  return 6.0 * static_cast<double>(terms) * kUnitRoundoff;
}

inline void expect_near(const std::vector<float>& found, const std::vector<double>& expected,
                        double allowed) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(found[i]), expected[i], allowed) << "value " << i;
  }
}

}  // namespace standin::libraries
