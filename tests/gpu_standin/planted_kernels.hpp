#pragma once

#include <cuda_runtime_api.h>

// Kernels that are right, and kernels with one mistake each, to see that the stand-in tells them apart. Each
// function launches one, with `threads` a block.

namespace standin::planted {

struct Pair {
  const float* in;
  float* out;
};

struct Kernels {
  void (*add_one)(cudaStream_t, float* values, int count);  // any number of blocks
  void (*copy)(cudaStream_t, Pair pair, int count);
  void (*copy_element)(cudaStream_t, const float* in, long in_index, float* out, long out_index);
  void (*block_sums)(cudaStream_t, int blocks, int threads, const float* in, float* out);
  void (*reverse_block)(cudaStream_t, int threads, bool has_barrier, const float* in, float* out);
  void (*reverse_warp)(cudaStream_t, bool has_barrier, const float* in, float* out);
  void (*write_from_each_block)(cudaStream_t, int blocks, int* out);
  void (*count_threads)(cudaStream_t, int blocks, int threads, int* out);
  void (*divergent_barrier)(cudaStream_t, int threads, int arriving);
  void (*shuffle_without_a_lane)(cudaStream_t, float* out);
  void (*keep_shared)(cudaStream_t, int blocks, float* out);
  void (*launch_shape)(cudaStream_t, dim3 grid, dim3 block);
};

const Kernels& checked_kernels();
const Kernels& fast_kernels();

}  // namespace standin::planted
