#include "runtime/result.hpp"

#include <array>
#include <utility>

#include "standin.hpp"

using standin::must_fail;

namespace {

cudaError_t last_error = cudaSuccess;

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr auto kErrors = std::to_array<ErrorText>({
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
});

const ErrorText& find(cudaError_t error) {
  static constexpr ErrorText kUnrecognised{cudaErrorUnknown, "unrecognized error code",
                                           "unrecognized error code"};
  for (const ErrorText& each : kErrors) {
    if (each.error == error) {
      return each;
    }
  }
  return kUnrecognised;
}

}  // namespace

cudaError_t standin::finish(cudaError_t result) {
  if (result != cudaSuccess) {
    last_error = result;
  }
  return result;
}

extern "C" {

cudaError_t cudaGetLastError() {
  if (must_fail("cudaGetLastError")) {
    return cudaErrorUnknown;
  }
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  if (must_fail("cudaPeekAtLastError")) {
    return cudaErrorUnknown;
  }
  return last_error;
}

const char* cudaGetErrorString(cudaError_t error) {
  must_fail("cudaGetErrorString");
  return find(error).text;
}

const char* cudaGetErrorName(cudaError_t error) {
  must_fail("cudaGetErrorName");
  return find(error).name;
}

}  // extern "C"
