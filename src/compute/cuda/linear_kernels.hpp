#pragma once

#include <cuda_runtime_api.h>

namespace convnet::cuda {

// y = the bias in each of `batch` rows of `classes` values.
void fill_rows(cudaStream_t stream, int batch, int classes, const float* bias, float* y);

// sums[k] = the sum over rows of column k, in double. T is float or __nv_bfloat16.
template <class T>
void sum_columns(cudaStream_t stream, int batch, int classes, const T* dy, float* sums);

}  // namespace convnet::cuda
