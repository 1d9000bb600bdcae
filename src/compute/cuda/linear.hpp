#pragma once

#include <cublas_v2.h>
#include <cuda_bf16.h>

#include "compute/cuda/buffer.hpp"
#include "compute/cuda/handles.hpp"
#include "compute/cuda_options.hpp"

namespace convnet::cuda {

// cuBLAS on one stream, with a workspace of its own: a captured graph must not allocate.
class Blas {
 public:
  Blas(cudaStream_t stream, Precision precision);

  cublasHandle_t handle() const { return handle_.get(); }
  cublasComputeType_t compute_type() const { return compute_type_; }

 private:
  DeviceArray<std::byte> workspace_;
  CublasHandle handle_;
  cublasComputeType_t compute_type_;
};

// Sizes of a linear layer at one batch size.
struct LinearShape {
  int batch = 0;
  int inputs = 0;
  int classes = 0;
};

// Linear layer: y = x weights^T + bias, with x batch x inputs, weights classes x inputs, y batch x classes in
// float, row by row in device memory. T is float or __nv_bfloat16.
template <class T>
void linear_forward(const Blas& blas, cudaStream_t stream, const LinearShape& shape, const T* x,
                    const T* weights, const float* bias, float* y);

// Gradients of weights, bias and x.
template <class T>
void linear_backward(const Blas& blas, cudaStream_t stream, const LinearShape& shape, const T* x,
                     const T* weights, const T* dy, float* dweights, float* dbias, T* dx);

}  // namespace convnet::cuda
