#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "libraries/convolution_arithmetic.hpp"
#include "libraries/cudnn_descriptors.hpp"

// What cuDNN's convolutions and the choice of their algorithms share.
namespace standin::libraries {

// The descriptors of a convolution, once they are known to agree.
struct ConvolutionCall {
  const cudnnTensorStruct* x = nullptr;
  const cudnnFilterStruct* w = nullptr;
  const cudnnConvolutionStruct* convolution = nullptr;
  const cudnnTensorStruct* y = nullptr;
  Type type = Type::kFloat;
  ConvolutionShape shape;

  // TF32 is what cuDNN computes in unless told not to.
  bool may_use_tf32() const { return type == Type::kFloat && convolution->math_type != CUDNN_FMA_MATH; }
  std::size_t filter_bytes() const { return w->count() * size_of(type); }
};

ConvolutionCall agreed(const char* call, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                       cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y);

// One algorithm of one of the three operations.
struct Algorithm {
  int number = 0;
  bool is_supported = true;
  bool is_deterministic = true;
  bool has_tensor_cores = false;
  std::size_t workspace = 0;  // bytes
};

enum class Operation { kForward, kBackwardData, kBackwardFilter };

// All algorithms of an operation, the fastest first; what is not supported comes last.
std::vector<Algorithm> algorithms(Operation operation, const ConvolutionCall& call);

// The algorithm of that number: refused if there is none or it is not supported.
Algorithm chosen(Operation operation, const ConvolutionCall& call, int number);

}  // namespace standin::libraries
