#pragma once

#include <cudnn.h>

#include <cstddef>

#include "compute/cuda/handles.hpp"
#include "compute/cuda_options.hpp"
#include "convnet/network.hpp"

// Convolutions by cuDNN. All its calls for them are here and in convolution.cpp, so that another of its
// interfaces can take their place.

namespace convnet::cuda {

using TensorDescriptor = Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using FilterDescriptor = Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor = Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;

// N x C x H x W, float or, with Precision::kBf16, bfloat16.
TensorDescriptor describe_images(int batch, const ImageShape& shape, Precision precision);

// One pass of a convolution (forward, weight gradient or data gradient) with the algorithm chosen for it.
template <class Algorithm>
struct ConvolutionPass {
  ConvolutionDescriptor descriptor;  // carries the math type that the algorithm was chosen with
  Algorithm algorithm{};
  std::size_t workspace_bytes = 0;
};

// A convolution at one batch size.
struct ConvolutionPlan {
  TensorDescriptor x, y;
  FilterDescriptor weights;
  ConvolutionPass<cudnnConvolutionFwdAlgo_t> forward;
  ConvolutionPass<cudnnConvolutionBwdFilterAlgo_t> weight_gradient;
  ConvolutionPass<cudnnConvolutionBwdDataAlgo_t> data_gradient;

  // What the workspace of all passes must hold.
  std::size_t workspace_bytes() const;
};

// Whether a convolution's input has a gradient that somebody needs: the images have not.
enum class DataGradient { kUnused, kNeeded };

// Chooses the algorithms by cuDNN's heuristics, or, with autotune, by measuring. Throws Error (kUnavailable)
// if none fits (deterministic, where that is asked for).
ConvolutionPlan plan_convolution(cudnnHandle_t cudnn, const ImageShape& input, const ConvBlock& block,
                                 int batch, DataGradient data_gradient, const CudaOptions& options);

// All pointers are to device memory, of float or bfloat16 as planned; weights are out x in x row x column.
void convolve(cudnnHandle_t cudnn, const ConvolutionPlan& plan, const void* x, const void* weights, void* y,
              void* workspace);
void convolve_weight_gradient(cudnnHandle_t cudnn, const ConvolutionPlan& plan, const void* x, const void* dy,
                              void* dweights, void* workspace);
void convolve_data_gradient(cudnnHandle_t cudnn, const ConvolutionPlan& plan, const void* dy,
                            const void* weights, void* dx, void* workspace);

}  // namespace convnet::cuda
