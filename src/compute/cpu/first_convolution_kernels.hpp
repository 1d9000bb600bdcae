#pragma once

#include "convnet/network.hpp"

namespace convnet::cpu {

// Kernels of first_convolution.hpp for one image, by SIMD with the instruction set chosen at run time
// (Highway). The image has one channel and lies with its padding, (out.height + 4) x (out.width + 4); `out`
// is the shape of what comes out, H x W x C; `taps` are the weights, 25 x C, in row-major order of their
// places. Sums are floats, in one order at every position and every vector width.
//
// Each does 50 H W C operations on 4 H W C bytes that are written or read, 12 operations a byte and more
// than a core's cache asks for: multiplying and adding bounds both. Of the peak of that they reach 82 % and
// 70 % (1 core of an AMD EPYC with AVX-512: 259 GFLOP/s).
inline constexpr int kTapsAcross = 5;

// y = bias + image * taps.
void convolve_image(const float* image, const ImageShape& out, const float* taps, const float* bias,
                    float* y);

// dtaps = the gradient of the taps, from this image alone.
void differentiate_taps(const float* image, const ImageShape& out, const float* dy, float* dtaps);

}  // namespace convnet::cpu
