#include <gmock/gmock.h>

#include <cmath>

#include "standin_test.hpp"

namespace standin {
namespace {

using testing::Each;

class Runtime : public StandinTest {};

TEST_P(Runtime, WorkIsDoneWhenTheHostWaits) {
  float* pinned = make_pinned_memory(kCount);
  pinned[1] = 7.0F;
  checked_.add_one(stream_, first_, kCount);
  EXPECT_SUCCESS(cudaMemcpyAsync(pinned, first_, kCount * sizeof(float), cudaMemcpyDeviceToHost, stream_));
  EXPECT_EQ(pinned[1], 7.0F);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(pinned[1], 7.0F);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
  EXPECT_EQ(pinned[1], 2.0F);
  EXPECT_SUCCESS(cudaFreeHost(pinned));
}

TEST_P(Runtime, PinnedMemoryIsReadWhenTheCopyRunsAndPageableMemoryAtTheCall) {
  float* pinned = make_pinned_memory(1);
  float pageable = 1.0F;
  *pinned = 1.0F;
  EXPECT_SUCCESS(cudaMemcpyAsync(first_, pinned, sizeof(float), cudaMemcpyHostToDevice, stream_));
  EXPECT_SUCCESS(cudaMemcpyAsync(first_ + 1, &pageable, sizeof(float), cudaMemcpyHostToDevice, stream_));
  *pinned = pageable = 2.0F;
  EXPECT_THAT(download(first_, 2), testing::ElementsAre(2.0F, 1.0F));
  EXPECT_SUCCESS(cudaFreeHost(pinned));
}

TEST_P(Runtime, NewMemoryHoldsNoNumbers) {
  EXPECT_THAT(download(second_, kCount), Each(testing::IsNan()));
}

TEST_P(Runtime, HostCodeThatTouchesDeviceMemoryIsCaught) {
  EXPECT_DEATH(second_[3] = 1.0F,
               "host code touches device memory, at offset 12 of an allocation of 400 bytes");
}

TEST_P(Runtime, AMissingEventIsCaught) {
  for (const planted::Kernels* kernels : {&checked_}) {
    EXPECT_DEATH(
        {
          kernels->add_one(stream_, first_, kCount);
          kernels->copy(other_, {first_, second_}, kCount);
          cudaDeviceSynchronize();
        },
        "_kernel' and '.*_kernel' touch the same memory and nothing orders them");
  }
  EXPECT_DEATH(
      {
        cudaMemsetAsync(first_, 0, 8, stream_);
        cudaMemsetAsync(first_ + 1, 0, 8, other_);
        cudaStreamSynchronize(stream_);
        cudaStreamSynchronize(other_);
      },
      "'cudaMemsetAsync' and 'cudaMemsetAsync' touch the same memory.*bytes 4 to 8");
}

TEST_P(Runtime, AnEventOrdersTwoStreams) {
  for (const planted::Kernels* kernels : {&checked_, &fast_}) {
    kernels->add_one(stream_, first_, kCount);
    EXPECT_SUCCESS(cudaEventRecord(event_, stream_));
    EXPECT_SUCCESS(cudaStreamWaitEvent(other_, event_, 0));
    kernels->copy(other_, {first_, second_}, kCount);
    EXPECT_SUCCESS(cudaStreamSynchronize(other_));
    kernels->add_one(stream_, second_, kCount);  // ordered by the host
  }
  EXPECT_EQ(download(second_, kCount)[1], 4.0F);
}

TEST_P(Runtime, OtherStreamsRunAsEarlyOrAsLateAsTheyMay) {
  std::string done;
  const auto queue = [&done](cudaStream_t stream, const std::string& what) {
    enqueue(stream, what, {}, [&done, what] { done += what; });
  };
  queue(stream_, "a");
  queue(stream_, "b");
  queue(other_, "x");
  EXPECT_SUCCESS(cudaEventRecord(event_, other_));
  queue(other_, "y");
  EXPECT_SUCCESS(cudaStreamWaitEvent(stream_, event_, 0));
  queue(stream_, "c");
  EXPECT_SUCCESS(cudaStreamSynchronize(stream_));
  EXPECT_EQ(done, GetParam() == Order::kForward ? "xabc" : "abxc");  // and nothing that c does not need
  EXPECT_SUCCESS(cudaStreamSynchronize(other_));
  EXPECT_EQ(done.back(), 'y');
}

TEST_P(Runtime, ThousandsOfNodesStayCheap) {
  constexpr int kNodes = 5000;
  for (int i = 0; i < kNodes; ++i) {
    const cudaStream_t stream = i % 2 == 0 ? stream_ : other_;
    EXPECT_SUCCESS(cudaStreamWaitEvent(stream, event_, 0));
    EXPECT_SUCCESS(cudaMemsetAsync(first_, i % 100, 8, stream));
    EXPECT_SUCCESS(cudaEventRecord(event_, stream));
  }
  EXPECT_SUCCESS(cudaEventSynchronize(event_));
}

TEST_P(Runtime, FreedMemoryIsNoLongerUsed) {
  float* memory = make_device_memory(kCount);
  EXPECT_DEATH(
      {
        checked_.copy(stream_, {first_, memory}, kCount);
        cudaFree(memory);
      },
      "cudaFree: '.*copy_kernel' is queued and unfinished, and uses the allocation of 400 bytes");
  EXPECT_SUCCESS(cudaFree(memory));
  EXPECT_DEATH(
      checked_.copy(stream_, {first_, memory}, kCount),
      "copy_kernel' is given a pointer to freed memory, at offset 0 of a freed allocation of 400 bytes");
  EXPECT_DEATH(cudaFree(memory), "cudaFree of a pointer that is not");
  EXPECT_DEATH(cudaMemsetAsync(memory, 0, 4, stream_), "cudaMemsetAsync");
  EXPECT_DEATH(
      {
        enqueue(stream_, "library call", {}, [memory] { *memory = 1.0F; });
        cudaDeviceSynchronize();
      },
      "'library call' touches memory at offset 0 of a freed allocation");
}

TEST_P(Runtime, CopiesThatDoNotFitAreCaught) {
  std::vector<float> values(2 * kCount);
  EXPECT_DEATH(cudaMemcpyAsync(first_, values.data(), 800, cudaMemcpyHostToDevice, stream_),
               "within one allocation");
  EXPECT_DEATH(cudaMemcpyAsync(first_, values.data(), 8, cudaMemcpyDeviceToHost, stream_), "direction");
  EXPECT_DEATH(cudaMemsetAsync(first_, 0, 4, nullptr), "default stream");
  EXPECT_DEATH(enqueue(stream_, "sgemm", {{first_, 404, false}}, [] {}),
               "'sgemm' refers to 404 bytes at offset 0");
}

TEST_P(Runtime, ObjectsLiveOnce) {
  EXPECT_DEATH(
      {
        cudaEventDestroy(event_);
        cudaEventDestroy(event_);
      },
      "cudaEvent_t .* is destroyed, but does not live");
  EXPECT_DEATH(
      {
        cudaStreamDestroy(stream_);
        cudaStreamQuery(stream_);
      },
      "cudaStreamQuery: cudaStream_t .* does not live");
  float* leak = make_pinned_memory(1);
  EXPECT_EQ(live_objects().at("pinned memory"), 1);
  EXPECT_EQ(live_objects().at("device memory"), 2);
  EXPECT_SUCCESS(cudaFreeHost(leak));
}

TEST_P(Runtime, AnyCallCanBeMadeToFailOnce) {
  void* memory = nullptr;
  fail("cudaMalloc", 2);
  EXPECT_SUCCESS(cudaMalloc(&memory, 8));
  EXPECT_SUCCESS(cudaFree(memory));
  const long calls_before = calls().at("cudaMalloc");
  EXPECT_EQ(cudaMalloc(&memory, 8), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_SUCCESS(cudaMalloc(&memory, 8));
  EXPECT_SUCCESS(cudaFree(memory));
  EXPECT_EQ(calls().at("cudaMalloc"), calls_before + 2);
}

TEST_P(Runtime, StalledWorkIsNeverDone) {
  stall("ncclAllReduce");
  enqueue(stream_, "ncclAllReduce", {{first_, 4, true}}, [] {});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  }
  EXPECT_SUCCESS(cudaStreamSynchronize(other_));
  EXPECT_DEATH(cudaStreamSynchronize(stream_),
               "cudaStreamSynchronize would wait for ever: 'ncclAllReduce' is stalled");
  end_stall("ncclAllReduce");
}

TEST_P(Runtime, EventsMeasureTime) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  float milliseconds = -1.0F;
  EXPECT_SUCCESS(cudaEventCreate(&begin));
  EXPECT_SUCCESS(cudaEventCreate(&end));
  EXPECT_SUCCESS(cudaEventRecord(begin, stream_));
  EXPECT_SUCCESS(cudaEventRecord(end, stream_));
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorNotReady);
  EXPECT_SUCCESS(cudaEventSynchronize(end));
  EXPECT_SUCCESS(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GE(milliseconds, 0.0F);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event_, end), cudaErrorInvalidResourceHandle);
  EXPECT_SUCCESS(cudaEventDestroy(begin));
  EXPECT_SUCCESS(cudaEventDestroy(end));
}

INSTANTIATE_TEST_SUITE_P(Orders, Runtime, testing::Values(Order::kForward, Order::kBackward), order_name);

}  // namespace
}  // namespace standin
