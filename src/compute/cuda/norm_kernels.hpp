#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "convnet/network.hpp"

// Batch norm, ReLU and max-pool 2 x 2, fused: the kernels. Activations are N x C x H x W, of T = float or
// __nv_bfloat16. Sums over a batch's pixels are float over 64 pixels at most and double from there on, always
// added in the same order.

namespace convnet::cuda {

constexpr double kNormEpsilon = 1e-5;  // PyTorch's defaults
constexpr double kNormMomentum = 0.1;

// Where sums over a batch lie in device memory: `parts` times 2 C doubles, two for each channel (first all C
// of one kind, then all C of the other), which together make the whole, and how many values a channel went
// in.
struct ChannelSums {
  double* values = nullptr;
  int parts = 0;
  double count = 0.0;
  const double* all_count = nullptr;  // where given, the count lies there, in device memory
};

// What batch norm holds for each of C channels, in device memory. The convolution leaves its bias to it: it
// cancels out in training, and shifts the running mean.
struct NormArrays {
  int channels = 0;
  const float* bias = nullptr;
  const float* gamma = nullptr;
  const float* beta = nullptr;
  float* running_mean = nullptr;
  float* running_var = nullptr;
  float* mean = nullptr;                // of the batch, without the bias
  double* inverse_deviation = nullptr;  // of the batch
  float* scale = nullptr;               // y = max(0, scale x + shift)
  float* shift = nullptr;
  float* slope = nullptr;  // dx = scale g - slope (x - mean) - offset
  float* offset = nullptr;
};

// A batch as it goes through: x before batch norm, y pooled.
struct NormBatch {
  int batch = 0;
  ImageShape shape;  // of x
};

// Parts into which channel_sums and gradient_sums split a batch: what ChannelSums::values must have room for.
int sum_parts(int batch);

// Sums and sums of squares of x, for each channel.
template <class T>
void channel_sums(cudaStream_t stream, const NormBatch& batch, const T* x, const ChannelSums& sums);

// Adds the parts up into one: totals holds 2 C doubles and, behind them, the count.
void add_parts(cudaStream_t stream, int channels, const ChannelSums& sums, double* totals);

// From sums to mean, deviation, scale and shift, and the running statistics' step; nothing where the count is
// 0. Normalised with the biased variance, epsilon 1e-5; running = 0.9 running + 0.1 batch, with the unbiased
// variance there (Ioffe and Szegedy 2015, arXiv:1502.03167, and PyTorch's BatchNorm2d).
void set_statistics(cudaStream_t stream, const ChannelSums& sums, const NormArrays& arrays);

// Scale and shift from the running statistics.
void set_inference_scale(cudaStream_t stream, const NormArrays& arrays);

// y = the pooled maximum of max(0, scale x + shift); places, where given, its place in the window: 0 to 3 in
// row-major order, the first of equals, or 4 where ReLU cut it off. A NaN comes through.
template <class T>
void normalise_relu_pool(cudaStream_t stream, const NormBatch& batch, const T* x, const NormArrays& arrays,
                         T* y, std::uint8_t* places);

// Sums over y's gradient g, where ReLU let it through, and over g (x - mean), for each channel.
template <class T>
void gradient_sums(cudaStream_t stream, const NormBatch& batch, const T* x, const T* dy,
                   const std::uint8_t* places, const float* mean, const ChannelSums& sums);

// From sums to the gradients of gamma and beta.
void set_norm_gradients(cudaStream_t stream, const ChannelSums& sums, const NormArrays& arrays, float* dgamma,
                        float* dbeta);

// From sums to scale, slope and offset.
void set_input_terms(cudaStream_t stream, const ChannelSums& sums, const NormArrays& arrays);

// Replaces x by its own gradient.
template <class T>
void replace_by_gradient(cudaStream_t stream, const NormBatch& batch, T* x, const T* dy,
                         const std::uint8_t* places, const NormArrays& arrays);

}  // namespace convnet::cuda
