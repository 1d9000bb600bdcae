#include "compute/cuda/device_code.cuh"
#include "compute/cuda/launch.hpp"
#include "compute/cuda/norm_kernels.hpp"

namespace convnet::cuda {
namespace {

constexpr int kCutOff = 4;  // the place of a maximum that is not above 0

// A pooling window of one plane of x, or, at an odd edge, what is there of it.
struct Window {
  std::int64_t plane;
  int row;  // of the window
  int column;
};

__device__ Window window_at(std::int64_t i, int rows, int columns) {
  return {i / columns / rows, static_cast<int>(i / columns % rows), static_cast<int>(i % columns)};
}

template <class T>
__global__ void normalise_relu_pool_kernel(std::int64_t size, ImageShape shape, const T* x, NormArrays arrays,
                                           T* y, std::uint8_t* places) {
  const std::int64_t i = global_index();
  if (i >= size) {
    return;
  }
  const Window window = window_at(i, shape.height / 2, shape.width / 2);
  const std::int64_t channel = window.plane % shape.channels;
  const float scale = arrays.scale[channel];
  const float shift = arrays.shift[channel];
  const T* corner = x + (window.plane * shape.height + 2 * window.row) * shape.width + 2 * window.column;
  float best = fmaf(to_float(corner[0]), scale, shift);
  int place = 0;
  for (int k = 1; k < 4; ++k) {
    const float value = fmaf(to_float(corner[k / 2 * shape.width + k % 2]), scale, shift);
    if (value > best || isnan(value)) {  // the first of equals stays, and a NaN is never replaced
      best = value;
      place = k;
    }
  }
  const bool is_cut_off = best <= 0.0F;  // false for NaN, which must come through
  y[i] = from_float<T>(is_cut_off ? 0.0F : best);
  if (places != nullptr) {
    places[i] = static_cast<std::uint8_t>(is_cut_off ? kCutOff : place);
  }
}

// A thread for each window, those that an odd edge cuts included: no pooling covers them, and only the
// statistics pass a gradient on to them.
template <class T>
__global__ void replace_by_gradient_kernel(std::int64_t size, ImageShape shape, T* x, const T* dy,
                                           const std::uint8_t* places, NormArrays arrays) {
  const std::int64_t i = global_index();
  if (i >= size) {
    return;
  }
  const int rows = shape.height / 2;
  const int columns = shape.width / 2;
  const Window window = window_at(i, (shape.height + 1) / 2, (shape.width + 1) / 2);
  const std::int64_t channel = window.plane % shape.channels;
  int place = kCutOff;
  float gradient = 0.0F;
  if (window.row < rows && window.column < columns) {
    const std::int64_t pooled = (window.plane * rows + window.row) * columns + window.column;
    place = places[pooled];
    gradient = to_float(dy[pooled]) * arrays.scale[channel];
  }
  const float mean = arrays.mean[channel];
  const float slope = arrays.slope[channel];
  const float offset = arrays.offset[channel];
  for (int k = 0; k < 4; ++k) {
    const int row = 2 * window.row + k / 2;
    const int column = 2 * window.column + k % 2;
    if (row < shape.height && column < shape.width) {
      T& pixel = x[(window.plane * shape.height + row) * shape.width + column];
      const float through_statistics = fmaf(-(to_float(pixel) - mean), slope, -offset);
      pixel = from_float<T>(through_statistics + (k == place ? gradient : 0.0F));
    }
  }
}

}  // namespace

template <class T>
void normalise_relu_pool(cudaStream_t stream, const NormBatch& batch, const T* x, const NormArrays& arrays,
                         T* y, std::uint8_t* places) {
  const std::int64_t planes = std::int64_t{batch.batch} * batch.shape.channels;
  const std::int64_t size = planes * (batch.shape.height / 2) * (batch.shape.width / 2);
  if (size > 0) {
    launch(normalise_relu_pool_kernel<T>, blocks_for(size), kBlockSize, stream, size, batch.shape, x, arrays,
           y, places);
  }
}

template <class T>
void replace_by_gradient(cudaStream_t stream, const NormBatch& batch, T* x, const T* dy,
                         const std::uint8_t* places, const NormArrays& arrays) {
  const std::int64_t planes = std::int64_t{batch.batch} * batch.shape.channels;
  const std::int64_t size = planes * ((batch.shape.height + 1) / 2) * ((batch.shape.width + 1) / 2);
  launch(replace_by_gradient_kernel<T>, blocks_for(size), kBlockSize, stream, size, batch.shape, x, dy,
         places, arrays);
}

template void normalise_relu_pool(cudaStream_t, const NormBatch&, const float*, const NormArrays&, float*,
                                  std::uint8_t*);
template void normalise_relu_pool(cudaStream_t, const NormBatch&, const __nv_bfloat16*, const NormArrays&,
                                  __nv_bfloat16*, std::uint8_t*);
template void replace_by_gradient(cudaStream_t, const NormBatch&, float*, const float*, const std::uint8_t*,
                                  const NormArrays&);
template void replace_by_gradient(cudaStream_t, const NormBatch&, __nv_bfloat16*, const __nv_bfloat16*,
                                  const std::uint8_t*, const NormArrays&);

}  // namespace convnet::cuda
