#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>

#include <source_location>

namespace convnet::cuda {

// Each throws Error (kInternal) with the call and the library's own text unless the result is a success.
void check(cudaError_t result, const char* call,
           std::source_location where = std::source_location::current());
void check(cudnnStatus_t result, const char* call,
           std::source_location where = std::source_location::current());
void check(cublasStatus_t result, const char* call,
           std::source_location where = std::source_location::current());
void check(ncclResult_t result, const char* call,
           std::source_location where = std::source_location::current());

}  // namespace convnet::cuda
