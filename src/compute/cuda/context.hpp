#pragma once

#include "compute/cuda/handles.hpp"
#include "compute/cuda/linear.hpp"
#include "compute/cuda_options.hpp"

namespace convnet::cuda {

// The stream that computes, and the libraries that queue work on it.
struct Context {
  explicit Context(const CudaOptions& given)
      : options(given),
        stream(make_stream()),
        cudnn(make_handle<CudnnHandle>("cudnnCreate", cudnnCreate)),
        blas(stream.get(), given.precision) {
    check(cudnnSetStream(cudnn.get(), stream.get()), "cudnnSetStream");
  }

  CudaOptions options;
  Stream stream;
  CudnnHandle cudnn;
  Blas blas;
};

}  // namespace convnet::cuda
