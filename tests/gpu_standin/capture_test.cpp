#include <gmock/gmock.h>

#include "standin_test.hpp"

namespace standin {
namespace {

class Capturing : public StandinTest {
 protected:
  void begin() { EXPECT_SUCCESS(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal)); }

  void fork() {
    EXPECT_SUCCESS(cudaEventRecord(event_, stream_));
    EXPECT_SUCCESS(cudaStreamWaitEvent(other_, event_, 0));
  }

  void join() {
    EXPECT_SUCCESS(cudaEventRecord(event_, other_));
    EXPECT_SUCCESS(cudaStreamWaitEvent(stream_, event_, 0));
  }

  // Ends the capture, and makes it ready to be launched.
  cudaGraphExec_t end() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t execution = nullptr;
    EXPECT_SUCCESS(cudaStreamEndCapture(stream_, &graph));
    EXPECT_SUCCESS(cudaGraphInstantiate(&execution, graph, 0));
    EXPECT_SUCCESS(cudaGraphDestroy(graph));
    return execution;
  }

  void expect_end(cudaError_t result) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), result);
    EXPECT_EQ(graph, nullptr);
    EXPECT_FALSE(is_capturing(stream_));
    EXPECT_FALSE(is_capturing(other_));
  }
};

TEST_P(Capturing, AGraphLaunchedTwiceReadsWhatIsThereEachTime) {
  begin();
  checked_.add_one(stream_, first_, kCount);
  fork();
  checked_.copy(other_, {first_, second_}, kCount);
  join();
  const cudaGraphExec_t graph = end();
  EXPECT_SUCCESS(cudaGraphLaunch(graph, stream_));
  EXPECT_SUCCESS(cudaMemsetAsync(first_, 0, sizeof(float), stream_));
  EXPECT_SUCCESS(cudaGraphLaunch(graph, stream_));
  EXPECT_THAT(download(second_, 3), testing::ElementsAre(1.0F, 3.0F, 4.0F));
  EXPECT_SUCCESS(cudaGraphExecDestroy(graph));
}

TEST_P(Capturing, AMissingEventInsideAGraphIsCaught) {
  begin();
  fork();
  fast_.launch_shape(stream_, 1, 1);
  checked_.add_one(stream_, first_, kCount);
  checked_.copy(other_, {first_, second_}, kCount);
  join();
  const cudaGraphExec_t graph = end();
  EXPECT_DEATH(
      {
        cudaGraphLaunch(graph, stream_);
        cudaStreamSynchronize(stream_);
      },
      "_kernel' and '.*_kernel' touch the same memory and nothing orders them");
  EXPECT_SUCCESS(cudaGraphExecDestroy(graph));
}

TEST_P(Capturing, CallsThatWaitOrAllocateBreakIt) {
  void* memory = nullptr;
  float value = 0.0F;
  const auto calls = std::vector<std::function<cudaError_t()>>{
      [&] { return cudaStreamSynchronize(stream_); },
      [&] { return cudaStreamQuery(stream_); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaMalloc(&memory, 4); },
      [&] { return cudaFree(first_); },
      [&] { return cudaMallocHost(&memory, 4); },
      [&] { return cudaMemcpyAsync(&value, first_, 4, cudaMemcpyDeviceToHost, stream_); },
  };
  for (const auto& call : calls) {
    begin();
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(cudaMemsetAsync(first_, 0, 4, stream_), cudaErrorStreamCaptureInvalidated);
    expect_end(cudaErrorStreamCaptureInvalidated);
  }
  begin();
  EXPECT_DEATH(forbid_while_capturing("cudnnCreate"),
               "cudnnCreate is called while a stream is being captured");
  EXPECT_SUCCESS(cudaEventRecord(event_, stream_));
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorCapturedEvent);
  expect_end(cudaErrorStreamCaptureInvalidated);
}

TEST_P(Capturing, WorkThatDoesNotComeBackIsUnjoined) {
  begin();
  fork();
  EXPECT_SUCCESS(cudaMemsetAsync(first_, 0, 4, other_));
  expect_end(cudaErrorStreamCaptureUnjoined);
}

TEST_P(Capturing, EventsFromOutsideDoNotOrderWhatIsInside) {
  EXPECT_SUCCESS(cudaEventRecord(event_, other_));
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_, 0), cudaErrorStreamCaptureIsolation);
  expect_end(cudaErrorStreamCaptureInvalidated);
  begin();
  EXPECT_SUCCESS(cudaEventRecord(event_, stream_));
  EXPECT_SUCCESS(cudaStreamBeginCapture(other_, cudaStreamCaptureModeGlobal));
  EXPECT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaErrorStreamCaptureMerge);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_SUCCESS(cudaStreamEndCapture(stream_, &graph));
  EXPECT_SUCCESS(cudaGraphDestroy(graph));
}

TEST_P(Capturing, ItEndsWhereItBegan) {
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorIllegalState);
  begin();
  fork();
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureUnmatched);
  expect_end(cudaErrorStreamCaptureInvalidated);
}

TEST_P(Capturing, ALaunchGoesOnWithoutItsGraph) {
  begin();
  EXPECT_SUCCESS(cudaMemsetAsync(first_, 0, 4, stream_));
  const cudaGraphExec_t graph = end();
  EXPECT_SUCCESS(cudaGraphLaunch(graph, stream_));
  EXPECT_SUCCESS(cudaGraphExecDestroy(graph));
  EXPECT_DEATH(cudaFree(first_), "cudaFree: 'cudaMemsetAsync' is queued and unfinished");
  EXPECT_SUCCESS(cudaStreamSynchronize(stream_));
  EXPECT_DEATH(cudaGraphLaunch(graph, stream_), "cudaGraphLaunch: cudaGraphExec_t .* does not live");
}

TEST_P(Capturing, AGraphDoesNotOutliveItsMemory) {
  float* memory = make_device_memory(kCount);
  begin();
  checked_.copy(stream_, {first_, memory}, kCount);
  const cudaGraphExec_t graph = end();
  EXPECT_SUCCESS(cudaFree(memory));
  EXPECT_DEATH(cudaGraphLaunch(graph, stream_), "'.*copy_kernel' is given a pointer to freed memory");
  EXPECT_SUCCESS(cudaGraphExecDestroy(graph));
}

INSTANTIATE_TEST_SUITE_P(Orders, Capturing, testing::Values(Order::kForward, Order::kBackward), order_name);

}  // namespace
}  // namespace standin
