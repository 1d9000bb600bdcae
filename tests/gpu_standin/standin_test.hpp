#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planted_kernels.hpp"
#include "standin.hpp"

// Shared by the tests of the stand-in: each runs in both orders, and leaves nothing alive.

namespace standin {

#define EXPECT_SUCCESS(call) EXPECT_EQ(call, cudaSuccess)

inline cudaStream_t make_test_stream() {
  cudaStream_t stream = nullptr;
  EXPECT_SUCCESS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

inline cudaEvent_t make_test_event() {
  cudaEvent_t event = nullptr;
  EXPECT_SUCCESS(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

template <class T = float>
T* make_device_memory(std::size_t count) {
  void* memory = nullptr;
  EXPECT_SUCCESS(cudaMalloc(&memory, count * sizeof(T)));
  return static_cast<T*>(memory);
}

inline float* make_pinned_memory(std::size_t count) {
  void* memory = nullptr;
  EXPECT_SUCCESS(cudaMallocHost(&memory, count * sizeof(float)));
  return static_cast<float*>(memory);
}

// 0, 1, 2 ...: sums of them are exact.
inline std::vector<float> counting(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(i);
  }
  return values;
}

// Two streams, an event, and two buffers of kCount floats; the first holds 0, 1, 2 ...
class StandinTest : public testing::TestWithParam<Order> {
 protected:
  static constexpr int kCount = 100;

  void SetUp() override {
    set_order(GetParam());
    upload(first_, counting(kCount));
    EXPECT_SUCCESS(cudaDeviceSynchronize());
  }

  void TearDown() override {
    EXPECT_SUCCESS(cudaDeviceSynchronize());
    EXPECT_SUCCESS(cudaFree(first_));
    EXPECT_SUCCESS(cudaFree(second_));
    EXPECT_SUCCESS(cudaEventDestroy(event_));
    EXPECT_SUCCESS(cudaStreamDestroy(stream_));
    EXPECT_SUCCESS(cudaStreamDestroy(other_));
    EXPECT_EQ(live_objects(), (std::map<std::string, long>{}));
    cudaGetLastError();
  }

  template <class T>
  void upload(T* to, const std::vector<T>& values) {
    EXPECT_SUCCESS(
        cudaMemcpyAsync(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, stream_));
  }

  template <class T = float>
  std::vector<T> download(const T* from, std::size_t count) {
    std::vector<T> values(count);
    EXPECT_SUCCESS(cudaMemcpyAsync(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost, stream_));
    return values;
  }

  cudaStream_t stream_ = make_test_stream();
  cudaStream_t other_ = make_test_stream();
  cudaEvent_t event_ = make_test_event();
  float* first_ = make_device_memory(kCount);
  float* second_ = make_device_memory(kCount);
  const planted::Kernels& checked_ = planted::checked_kernels();
  const planted::Kernels& fast_ = planted::fast_kernels();
};

inline std::string order_name(const testing::TestParamInfo<Order>& order) {
  return order.param == Order::kForward ? "Forward" : "Backward";
}

}  // namespace standin
