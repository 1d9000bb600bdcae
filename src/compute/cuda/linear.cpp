#include "compute/cuda/linear.hpp"

#include "compute/cuda/linear_kernels.hpp"

namespace convnet::cuda {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // bytes: what cuBLAS' manual recommends for Hopper

template <class T>
constexpr cudaDataType_t kDataType = CUDA_R_32F;
template <>
constexpr cudaDataType_t kDataType<__nv_bfloat16> = CUDA_R_16BF;

// A matrix in memory as cuBLAS sees it, column by column: our rows are its columns.
template <class T>
struct Matrix {
  T* values;
  int column_size;
  cublasOperation_t operation = CUBLAS_OP_N;
};

// c = a b + beta c for a rows x depth matrix a and a depth x columns matrix b.
template <class T, class Result>
void multiply(const Blas& blas, int rows, int columns, int depth, Matrix<const T> a, Matrix<const T> b,
              float beta, Matrix<Result> c) {
  constexpr float kOne = 1.0F;
  check(cublasGemmEx(blas.handle(), a.operation, b.operation, rows, columns, depth, &kOne, a.values,
                     kDataType<T>, a.column_size, b.values, kDataType<T>, b.column_size, &beta, c.values,
                     kDataType<Result>, c.column_size, blas.compute_type(), CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
}

}  // namespace

Blas::Blas(cudaStream_t stream, Precision precision)
    : workspace_(kWorkspace),
      handle_(make_handle<CublasHandle>("cublasCreate", cublasCreate_v2)),
      compute_type_(precision == Precision::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F) {
  check(cublasSetStream_v2(handle_.get(), stream), "cublasSetStream");
  check(cublasSetWorkspace_v2(handle_.get(), workspace_.data(), workspace_.bytes()), "cublasSetWorkspace");
}

template <class T>
void linear_forward(const Blas& blas, cudaStream_t stream, const LinearShape& shape, const T* x,
                    const T* weights, const float* bias, float* y) {
  fill_rows(stream, shape.batch, shape.classes, bias, y);
  multiply<T, float>(blas, shape.classes, shape.batch, shape.inputs, {weights, shape.inputs, CUBLAS_OP_T},
                     {x, shape.inputs}, 1.0F, {y, shape.classes});
}

template <class T>
void linear_backward(const Blas& blas, cudaStream_t stream, const LinearShape& shape, const T* x,
                     const T* weights, const T* dy, float* dweights, float* dbias, T* dx) {
  sum_columns(stream, shape.batch, shape.classes, dy, dbias);
  multiply<T, float>(blas, shape.inputs, shape.classes, shape.batch, {x, shape.inputs},
                     {dy, shape.classes, CUBLAS_OP_T}, 0.0F, {dweights, shape.inputs});
  multiply<T, T>(blas, shape.inputs, shape.batch, shape.classes, {weights, shape.inputs}, {dy, shape.classes},
                 0.0F, {dx, shape.inputs});
}

template void linear_forward(const Blas&, cudaStream_t, const LinearShape&, const float*, const float*,
                             const float*, float*);
template void linear_forward(const Blas&, cudaStream_t, const LinearShape&, const __nv_bfloat16*,
                             const __nv_bfloat16*, const float*, float*);
template void linear_backward(const Blas&, cudaStream_t, const LinearShape&, const float*, const float*,
                              const float*, float*, float*, float*);
template void linear_backward(const Blas&, cudaStream_t, const LinearShape&, const __nv_bfloat16*,
                              const __nv_bfloat16*, const __nv_bfloat16*, float*, float*, __nv_bfloat16*);

}  // namespace convnet::cuda
