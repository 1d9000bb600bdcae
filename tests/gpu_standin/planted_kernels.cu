#include "planted_kernels.hpp"

#include "compute/cuda/launch.hpp"
#include "standin.hpp"

namespace standin::planted {
namespace {

using convnet::cuda::launch;

constexpr unsigned kAllLanes = 0xFFFFFFFF;
constexpr int kMostThreads = 1024;

__global__ void add_one_kernel(float* values, int count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < static_cast<unsigned>(count)) {
    values[i] += 1.0F;
  }
}

__global__ void copy_kernel(Pair pair, int count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < static_cast<unsigned>(count)) {
    pair.out[i] = pair.in[i];
  }
}

__global__ void copy_element_kernel(const float* in, long in_index, float* out, long out_index) {
  out[out_index] = in[in_index];
}

__device__ float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_down_sync(kAllLanes, value, distance);
  }
  return value;
}

__global__ void __launch_bounds__(kMostThreads) block_sums_kernel(const float* __restrict__ in, float* out) {
  __shared__ float sums[kMostThreads / 32];
  const float sum = warp_sum(in[blockIdx.x * blockDim.x + threadIdx.x]);
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0.0F;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {
      total += sums[warp];
    }
    out[blockIdx.x] = total;
  }
}

__global__ void reverse_block_kernel(bool has_barrier, const float* in, float* out) {
  __shared__ float values[kMostThreads];
  values[threadIdx.x] = 0.0F;
  __syncthreads();
  values[threadIdx.x] = in[threadIdx.x];
  if (has_barrier) {
    __syncthreads();
  }
  out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

__global__ void reverse_warp_kernel(bool has_barrier, const float* in, float* out) {
  __shared__ float values[32];
  values[threadIdx.x] = 0.0F;
  __syncwarp();
  values[threadIdx.x] = in[threadIdx.x];
  if (has_barrier) {
    __syncwarp();
  }
  out[threadIdx.x] = values[31 - threadIdx.x];
}

__global__ void write_from_each_block_kernel(int* out) {
  if (threadIdx.x == 0) {
    *out = static_cast<int>(blockIdx.x);
  }
}

__global__ void count_threads_kernel(int* out) {
  atomicAdd(out, 1);
}

__global__ void divergent_barrier_kernel(int arriving) {
  if (static_cast<int>(threadIdx.x) < arriving) {
    __syncthreads();
  }
}

__global__ void shuffle_without_a_lane_kernel(float* out) {
  if (threadIdx.x == 7) {
    return;
  }
  out[threadIdx.x] = __shfl_xor_sync(kAllLanes, 1.0F, 1);
}

// The first block writes, and a later one reads what is left.
__global__ void keep_shared_kernel(unsigned writer, float* out) {
  __shared__ float value;
  if (blockIdx.x == writer) {
    value = 1.0F;
  }
  out[blockIdx.x] = value;
}

__global__ void nothing_kernel() {}

constexpr int kThreads = 64;

dim3 blocks_for(int count) {
  return dim3(static_cast<unsigned>((count + kThreads - 1) / kThreads));
}

constexpr Kernels kKernels{
    .add_one = [](cudaStream_t stream, float* values,
                  int count) { launch(add_one_kernel, blocks_for(count), kThreads, stream, values, count); },
    .copy = [](cudaStream_t stream, Pair pair,
               int count) { launch(copy_kernel, blocks_for(count), kThreads, stream, pair, count); },
    .copy_element =
        [](cudaStream_t stream, const float* in, long in_index, float* out, long out_index) {
          launch(copy_element_kernel, 1, 1, stream, in, in_index, out, out_index);
        },
    .block_sums = [](cudaStream_t stream, int blocks, int threads, const float* in,
                     float* out) { launch(block_sums_kernel, blocks, threads, stream, in, out); },
    .reverse_block =
        [](cudaStream_t stream, int threads, bool has_barrier, const float* in, float* out) {
          launch(reverse_block_kernel, 1, threads, stream, has_barrier, in, out);
        },
    .reverse_warp = [](cudaStream_t stream, bool has_barrier, const float* in,
                       float* out) { launch(reverse_warp_kernel, 1, 32, stream, has_barrier, in, out); },
    .write_from_each_block = [](cudaStream_t stream, int blocks,
                                int* out) { launch(write_from_each_block_kernel, blocks, 32, stream, out); },
    .count_threads = [](cudaStream_t stream, int blocks, int threads,
                        int* out) { launch(count_threads_kernel, blocks, threads, stream, out); },
    .divergent_barrier = [](cudaStream_t stream, int threads,
                            int arriving) { launch(divergent_barrier_kernel, 1, threads, stream, arriving); },
    .shuffle_without_a_lane = [](cudaStream_t stream,
                                 float* out) { launch(shuffle_without_a_lane_kernel, 1, 32, stream, out); },
    .keep_shared =
        [](cudaStream_t stream, int blocks, float* out) {
          const bool is_forward = order() == Order::kForward;
          launch(keep_shared_kernel, blocks, 1, stream, is_forward ? 0 : blocks - 1, out);
        },
    .launch_shape = [](cudaStream_t stream, dim3 grid,
                       dim3 block) { launch(nothing_kernel, grid, block, stream); },
};

}  // namespace

#ifdef __SANITIZE_THREAD__
const Kernels& checked_kernels() {
  return kKernels;
}
#else
const Kernels& fast_kernels() {
  return kKernels;
}
#endif

}  // namespace standin::planted
