#include "compute/cuda/check.hpp"

#include <array>
#include <string>

#include "convnet/error.hpp"

namespace convnet::cuda {
namespace {

[[noreturn]] void fail(const char* call, const std::string& text, std::source_location where) {
  throw Error(ExitCode::kInternal, std::string(call) + " failed: " + text, where);
}

}  // namespace

void check(cudaError_t result, const char* call, std::source_location where) {
  if (result != cudaSuccess) {
    fail(call, std::string(cudaGetErrorString(result)) + " (" + cudaGetErrorName(result) + ")", where);
  }
}

void check(cudnnStatus_t result, const char* call, std::source_location where) {
  if (result == CUDNN_STATUS_SUCCESS) {
    return;
  }
  constexpr std::size_t kLongest = 512;
  std::array<char, kLongest> detail{};
  cudnnGetLastErrorString(detail.data(), detail.size());
  const std::string text(detail.data());
  fail(call, cudnnGetErrorString(result) + (text.empty() ? "" : " (" + text + ")"), where);
}

void check(cublasStatus_t result, const char* call, std::source_location where) {
  if (result != CUBLAS_STATUS_SUCCESS) {
    fail(call, cublasGetStatusString(result), where);
  }
}

void check(ncclResult_t result, const char* call, std::source_location where) {
  if (result != ncclSuccess) {
    fail(call, std::string(ncclGetErrorString(result)) + " (" + ncclGetLastError(nullptr) + ")", where);
  }
}

}  // namespace convnet::cuda
