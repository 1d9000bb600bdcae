#pragma once

#include <cstdint>

#include "convnet/network.hpp"

// The vector kernels of NormReluPool, each over one image, H x W x C in memory. Compiled for every vector
// width by Highway, and the best that the processor has is chosen at run time.
//
// All are bound by moving bytes, which lie in the cache. Each says how many, for how many operations, and how
// near it comes to a copy of as many bytes (1 core of an AMD EPYC with AVX-512: 129 GB/s).

namespace convnet::cpu {

// Adds to sums[c] and squares[c] the sums of x and x^2 of each channel. The squares are taken around the mean
// of 64 pixels at a time, so that a large mean costs no digits (Chan, Golub and LeVeque 1983). 4 bytes a
// value for 4 operations; 56 %.
void add_channel_sums(const float* x, const ImageShape& shape, double* sums, double* squares);

// y = max over 2 x 2 of max(0, scale x + shift). Where `winners` is given, also x at the maximum and its
// place. 4 bytes a value and 9 a window for 3 operations a value; 55 %.
void normalise_relu_pool(const float* x, const ImageShape& shape, const float* scale, const float* shift,
                         float* y, float* winners, std::uint8_t* places);

// Adds to sums[c] and products[c] the sums of g and g (x - mean), g being the gradient behind the ReLU.
// `pooled` is the shape after pooling. 9 bytes a window for 4 operations; 72 %.
void add_gradient_sums(const float* dy, const float* winners, const std::uint8_t* places,
                       const ImageShape& pooled, const float* mean, double* sums, double* products);

// What the input's gradient is made of, for each channel: dx = scale g - slope (x - mean) - offset.
struct InputGradient {
  const float* mean;
  const float* scale;
  const float* slope;
  const float* offset;
};

// The gradient of x, which may take the place of x itself. 8 bytes a value and 5 a window for 4 operations a
// value; 67 %.
void input_gradient(const float* x, const ImageShape& shape, const float* dy, const std::uint8_t* places,
                    const InputGradient& terms, float* dx);

}  // namespace convnet::cpu
