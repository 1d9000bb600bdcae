#include "compute/cuda/device_code.cuh"
#include "compute/cuda/launch.hpp"
#include "compute/cuda/linear_kernels.hpp"

namespace convnet::cuda {
namespace {

__global__ void fill_rows_kernel(std::int64_t size, int classes, const float* bias, float* y) {
  const std::int64_t i = global_index();
  if (i < size) {
    y[i] = bias[i % classes];
  }
}

// One warp a column.
template <class T>
__global__ void sum_columns_kernel(int batch, int classes, const T* dy, float* sums) {
  double sum = 0.0;
  for (int n = static_cast<int>(threadIdx.x); n < batch; n += kWarpSize) {
    sum += to_float(dy[static_cast<std::int64_t>(n) * classes + blockIdx.x]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = static_cast<float>(sum);
  }
}

}  // namespace

void fill_rows(cudaStream_t stream, int batch, int classes, const float* bias, float* y) {
  const std::int64_t size = static_cast<std::int64_t>(batch) * classes;
  launch(fill_rows_kernel, blocks_for(size), kBlockSize, stream, size, classes, bias, y);
}

template <class T>
void sum_columns(cudaStream_t stream, int batch, int classes, const T* dy, float* sums) {
  launch(sum_columns_kernel<T>, dim3(static_cast<unsigned>(classes)), kWarpSize, stream, batch, classes, dy,
         sums);
}

template void sum_columns(cudaStream_t, int, int, const float*, float*);
template void sum_columns(cudaStream_t, int, int, const __nv_bfloat16*, float*);

}  // namespace convnet::cuda
