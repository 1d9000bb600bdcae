#include "compute/cuda/device_code.cuh"
#include "compute/cuda/launch.hpp"
#include "compute/cuda/norm_kernels.hpp"

namespace convnet::cuda {
namespace {

constexpr int kWarps = kBlockSize / kWarpSize;
constexpr int kRun = 64;  // values that a lane adds up in float

struct Pair {
  double first;
  double second;
};

// The sums over all threads of a block, valid on thread 0.
__device__ Pair block_sum(Pair value) {
  __shared__ double firsts[kWarps];
  __shared__ double seconds[kWarps];
  value.first = warp_sum(value.first);
  value.second = warp_sum(value.second);
  if (threadIdx.x % kWarpSize == 0) {
    firsts[threadIdx.x / kWarpSize] = value.first;
    seconds[threadIdx.x / kWarpSize] = value.second;
  }
  __syncthreads();
  Pair total{0.0, 0.0};
  if (threadIdx.x == 0) {
    for (int warp = 0; warp < kWarps; ++warp) {
      total.first += firsts[warp];
      total.second += seconds[warp];
    }
  }
  return total;
}

// Sums term(sample, place) over the samples of this block's part, each warp taking one sample's plane after
// the other. A block for each part (x) and channel (y). `term` gives two floats to add to those it is given.
template <class Term>
__device__ Pair sum_over_part(int batch, int places, Term term) {
  const int samples = (batch + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int begin = static_cast<int>(blockIdx.x) * samples;
  const int end = min(begin + samples, batch);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  Pair sum{0.0, 0.0};
  for (int n = begin + static_cast<int>(threadIdx.x) / kWarpSize; n < end; n += kWarps) {
    for (int run = lane; run < places; run += kRun * kWarpSize) {
      float first = 0.0F;
      float second = 0.0F;
      for (int place = run; place < min(run + kRun * kWarpSize, places); place += kWarpSize) {
        term(n, place, first, second);
      }
      sum.first += first;
      sum.second += second;
    }
  }
  return block_sum(sum);
}

__device__ void store(const ChannelSums& sums, Pair total) {
  double* part = sums.values + static_cast<std::int64_t>(blockIdx.x) * 2 * gridDim.y;
  part[blockIdx.y] = total.first;
  part[gridDim.y + blockIdx.y] = total.second;
}

// Squares are taken of distances from the channel's first value, so that no digits are lost where the mean is
// large beside the deviation; in double the distance comes out again without harm.
template <class T>
__global__ void channel_sums_kernel(int batch, int pixels, const T* x, ChannelSums sums) {
  const std::int64_t channel = blockIdx.y;
  const std::int64_t channels = gridDim.y;
  const float origin = to_float(x[channel * pixels]);
  const Pair sum = sum_over_part(batch, pixels, [=](int n, int pixel, float& first, float& second) {
    const float distance = to_float(x[(n * channels + channel) * pixels + pixel]) - origin;
    first += distance;
    second = fmaf(distance, distance, second);
  });
  if (threadIdx.x == 0) {
    const int samples = (batch + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
    const int own = max(0, min(samples, batch - static_cast<int>(blockIdx.x) * samples));
    const double count = static_cast<double>(own) * pixels;
    store(sums,
          {sum.first + count * origin, sum.second + 2.0 * origin * sum.first + count * origin * origin});
  }
}

template <class T>
__global__ void gradient_sums_kernel(NormBatch batch, const T* x, const T* dy, const std::uint8_t* places,
                                     const float* mean, ChannelSums sums) {
  const std::int64_t channel = blockIdx.y;
  const std::int64_t channels = gridDim.y;
  const int height = batch.shape.height;
  const int width = batch.shape.width;
  const int pooled_width = width / 2;
  const int pooled = height / 2 * pooled_width;
  const float centre = mean[channel];
  const Pair sum = sum_over_part(batch.batch, pooled, [=](int n, int i, float& first, float& second) {
    const std::int64_t plane = n * channels + channel;
    const int place = places[plane * pooled + i];
    if (place < 4) {
      const int row = i / pooled_width * 2 + place / 2;
      const int column = i % pooled_width * 2 + place % 2;
      const float gradient = to_float(dy[plane * pooled + i]);
      const float winner = to_float(x[(plane * height + row) * width + column]);
      first += gradient;
      second = fmaf(gradient, winner - centre, second);
    }
  });
  if (threadIdx.x == 0) {
    store(sums, sum);
  }
}

// Adds up the parts of a channel's two sums: one warp a channel, the results on all lanes.
__device__ Pair add_up(const ChannelSums& sums, int channels) {
  Pair total{0.0, 0.0};
  for (int part = static_cast<int>(threadIdx.x); part < sums.parts; part += kWarpSize) {
    const double* values = sums.values + static_cast<std::int64_t>(part) * 2 * channels;
    total.first += values[blockIdx.x];
    total.second += values[channels + blockIdx.x];
  }
  return {warp_sum(total.first), warp_sum(total.second)};
}

__device__ double count_of(const ChannelSums& sums) {
  return sums.all_count != nullptr ? *sums.all_count : sums.count;
}

__global__ void add_parts_kernel(int channels, ChannelSums sums, double* totals) {
  const Pair total = add_up(sums, channels);
  if (threadIdx.x == 0) {
    totals[blockIdx.x] = total.first;
    totals[channels + blockIdx.x] = total.second;
    if (blockIdx.x == 0) {
      totals[2 * channels] = sums.count;
    }
  }
}

__global__ void set_statistics_kernel(ChannelSums sums, NormArrays arrays) {
  const Pair total = add_up(sums, arrays.channels);
  const double count = count_of(sums);
  const unsigned c = blockIdx.x;
  if (threadIdx.x != 0 || count == 0.0) {
    return;
  }
  const double mean = total.first / count;
  const double spread = total.second - total.first * mean;
  const double variance = spread < 0.0 ? 0.0 : spread / count;  // below 0 by rounding alone; NaN stays
  const double unbiased = count > 1.0 ? variance * count / (count - 1.0) : variance;
  const double inverse_deviation = 1.0 / sqrt(variance + kNormEpsilon);
  const double scale = arrays.gamma[c] * inverse_deviation;
  const double mean_with_bias = mean + arrays.bias[c];
  arrays.mean[c] = static_cast<float>(mean);
  arrays.inverse_deviation[c] = inverse_deviation;
  arrays.scale[c] = static_cast<float>(scale);
  // The bias goes in and out again: a NaN in it must come through.
  arrays.shift[c] = static_cast<float>(arrays.beta[c] - (mean_with_bias - arrays.bias[c]) * scale);
  arrays.running_mean[c] =
      static_cast<float>((1.0 - kNormMomentum) * arrays.running_mean[c] + kNormMomentum * mean_with_bias);
  arrays.running_var[c] =
      static_cast<float>((1.0 - kNormMomentum) * arrays.running_var[c] + kNormMomentum * unbiased);
}

__global__ void set_inference_scale_kernel(NormArrays arrays) {
  const std::int64_t c = global_index();
  if (c < arrays.channels) {
    const double scale = arrays.gamma[c] / sqrt(arrays.running_var[c] + kNormEpsilon);
    const double mean = static_cast<double>(arrays.running_mean[c]) - arrays.bias[c];
    arrays.scale[c] = static_cast<float>(scale);
    arrays.shift[c] = static_cast<float>(arrays.beta[c] - mean * scale);
  }
}

__global__ void set_norm_gradients_kernel(ChannelSums sums, NormArrays arrays, float* dgamma, float* dbeta) {
  const Pair total = add_up(sums, arrays.channels);
  if (threadIdx.x == 0) {
    dbeta[blockIdx.x] = static_cast<float>(total.first);
    dgamma[blockIdx.x] = static_cast<float>(total.second * arrays.inverse_deviation[blockIdx.x]);
  }
}

// dx = gamma / s (g - mean of g - (x - mean) / s^2 mean of g (x - mean)), s being the deviation.
__global__ void set_input_terms_kernel(ChannelSums sums, NormArrays arrays) {
  const Pair total = add_up(sums, arrays.channels);
  const double count = count_of(sums);
  const unsigned c = blockIdx.x;
  if (threadIdx.x != 0 || count == 0.0) {
    return;
  }
  const double inverse_deviation = arrays.inverse_deviation[c];
  const double scale = arrays.gamma[c] * inverse_deviation;
  arrays.scale[c] = static_cast<float>(scale);
  arrays.slope[c] =
      static_cast<float>(scale * inverse_deviation * inverse_deviation * (total.second / count));
  arrays.offset[c] = static_cast<float>(scale * total.first / count);
}

dim3 one_block_a_channel(int channels) {
  return dim3(static_cast<unsigned>(channels));
}

dim3 one_block_a_part(const ChannelSums& sums, int channels) {
  return dim3(static_cast<unsigned>(sums.parts), static_cast<unsigned>(channels));
}

}  // namespace

int sum_parts(int batch) {
  constexpr int kMost = 64;
  return min(kMost, (batch + kWarps - 1) / kWarps);
}

template <class T>
void channel_sums(cudaStream_t stream, const NormBatch& batch, const T* x, const ChannelSums& sums) {
  launch(channel_sums_kernel<T>, one_block_a_part(sums, batch.shape.channels), kBlockSize, stream,
         batch.batch, static_cast<int>(batch.shape.pixels()), x, sums);
}

void add_parts(cudaStream_t stream, int channels, const ChannelSums& sums, double* totals) {
  launch(add_parts_kernel, one_block_a_channel(channels), kWarpSize, stream, channels, sums, totals);
}

void set_statistics(cudaStream_t stream, const ChannelSums& sums, const NormArrays& arrays) {
  launch(set_statistics_kernel, one_block_a_channel(arrays.channels), kWarpSize, stream, sums, arrays);
}

void set_inference_scale(cudaStream_t stream, const NormArrays& arrays) {
  launch(set_inference_scale_kernel, blocks_for(arrays.channels), kBlockSize, stream, arrays);
}

template <class T>
void gradient_sums(cudaStream_t stream, const NormBatch& batch, const T* x, const T* dy,
                   const std::uint8_t* places, const float* mean, const ChannelSums& sums) {
  launch(gradient_sums_kernel<T>, one_block_a_part(sums, batch.shape.channels), kBlockSize, stream, batch, x,
         dy, places, mean, sums);
}

void set_norm_gradients(cudaStream_t stream, const ChannelSums& sums, const NormArrays& arrays, float* dgamma,
                        float* dbeta) {
  launch(set_norm_gradients_kernel, one_block_a_channel(arrays.channels), kWarpSize, stream, sums, arrays,
         dgamma, dbeta);
}

void set_input_terms(cudaStream_t stream, const ChannelSums& sums, const NormArrays& arrays) {
  launch(set_input_terms_kernel, one_block_a_channel(arrays.channels), kWarpSize, stream, sums, arrays);
}

template void channel_sums(cudaStream_t, const NormBatch&, const float*, const ChannelSums&);
template void channel_sums(cudaStream_t, const NormBatch&, const __nv_bfloat16*, const ChannelSums&);
template void gradient_sums(cudaStream_t, const NormBatch&, const float*, const float*, const std::uint8_t*,
                            const float*, const ChannelSums&);
template void gradient_sums(cudaStream_t, const NormBatch&, const __nv_bfloat16*, const __nv_bfloat16*,
                            const std::uint8_t*, const float*, const ChannelSums&);

}  // namespace convnet::cuda
