#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

// What several kernels need on the device. Included by .cu files only.

namespace convnet::cuda {

constexpr int kWarpSize = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFF;
constexpr int kBlockSize = 256;  // threads of a block, where a kernel has no reason for another number

__device__ inline float to_float(float value) {
  return value;
}
__device__ inline float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

template <class T>
__device__ T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16(value);
}

// This thread's number in a grid of one dimension.
__device__ inline std::int64_t global_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// The sum over the lanes of a warp, on all lanes, always added in the same order.
template <class Value>
__device__ Value warp_sum(Value value) {
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

// Blocks of kBlockSize threads that give each of `count` elements a thread.
inline dim3 blocks_for(std::int64_t count) {
  return dim3(static_cast<unsigned>((count + kBlockSize - 1) / kBlockSize));
}

}  // namespace convnet::cuda
