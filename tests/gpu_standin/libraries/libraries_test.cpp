#include <cublas_v2.h>
#include <cudnn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "libraries/device_array.hpp"
#include "standin.hpp"

// The stand-in's cuDNN layers other than convolutions, and its cuBLAS.

namespace standin::libraries {
namespace {

constexpr float kOne = 1.0F;
constexpr float kZero = 0.0F;
constexpr double kEpsilon = 1e-5;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A handle and some descriptors.
class Layers : public testing::Test {
 protected:
  Layers() {
    cudnnCreate(&handle_);
    cudnnSetStream(handle_, stream_);
    for (cudnnTensorDescriptor_t* tensor : {&x_, &y_, &small_}) {
      cudnnCreateTensorDescriptor(tensor);
    }
    cudnnCreateActivationDescriptor(&activation_);
    cudnnCreatePoolingDescriptor(&pooling_);
    cudnnSetActivationDescriptor(activation_, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0.0);
  }
  ~Layers() override {
    cudnnDestroyPoolingDescriptor(pooling_);
    cudnnDestroyActivationDescriptor(activation_);
    for (cudnnTensorDescriptor_t tensor : {x_, y_, small_}) {
      cudnnDestroyTensorDescriptor(tensor);
    }
    cudnnDestroy(handle_);
  }

  static void describe(cudnnTensorDescriptor_t tensor, int n, int c, int h, int w) {
    ASSERT_EQ(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, h, w),
              CUDNN_STATUS_SUCCESS);
  }

  Stream stream_;
  cudnnHandle_t handle_ = nullptr;
  cudnnTensorDescriptor_t x_ = nullptr;
  cudnnTensorDescriptor_t y_ = nullptr;
  cudnnTensorDescriptor_t small_ = nullptr;
  cudnnActivationDescriptor_t activation_ = nullptr;
  cudnnPoolingDescriptor_t pooling_ = nullptr;
};

// --- Batch norm

class BatchNorm : public Layers {
 protected:
  static constexpr int kImages = 3;
  static constexpr int kChannels = 2;
  static constexpr int kPixels = 4 * 5;
  static constexpr double kValues = kImages * kPixels;

  BatchNorm() {
    describe(x_, kImages, kChannels, 4, 5);
    EXPECT_EQ(cudnnDeriveBNTensorDescriptor(small_, x_, CUDNN_BATCHNORM_SPATIAL), CUDNN_STATUS_SUCCESS);
  }

  static std::size_t channel_of(std::size_t i) { return i / kPixels % kChannels; }

  cudnnStatus_t train(double epsilon = kEpsilon) {
    return cudnnBatchNormalizationForwardTraining(handle_, CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero, x_,
                                                  x_memory_.get(), x_, y_memory_.get(), small_, scale_.get(),
                                                  bias_.get(), 0.1, running_mean_.get(), running_var_.get(),
                                                  epsilon, saved_mean_.get(), saved_inverse_.get());
  }

  std::vector<float> x_values_ = random_values(kImages * kChannels * kPixels, 5);
  std::vector<float> dy_values_ = random_values(kImages * kChannels * kPixels, 6);
  Floats x_memory_{stream_, x_values_};
  Floats dy_memory_{stream_, dy_values_};
  Floats y_memory_{stream_, x_values_.size()};
  Floats scale_{stream_, {1.5F, -0.5F}};
  Floats bias_{stream_, {0.25F, 2.0F}};
  Floats running_mean_{stream_, {0.0F, 1.0F}};
  Floats running_var_{stream_, {1.0F, 2.0F}};
  Floats saved_mean_{stream_, 2};
  Floats saved_inverse_{stream_, 2};
};

TEST_F(BatchNorm, TrainsAsTheFormulaSays) {
  ASSERT_EQ(train(), CUDNN_STATUS_SUCCESS);
  std::vector<double> mean(2), variance(2), y;
  for (std::size_t i = 0; i < x_values_.size(); ++i) {
    mean[channel_of(i)] += x_values_[i] / kValues;
  }
  for (std::size_t i = 0; i < x_values_.size(); ++i) {
    variance[channel_of(i)] += std::pow(x_values_[i] - mean[channel_of(i)], 2) / kValues;
  }
  for (std::size_t i = 0; i < x_values_.size(); ++i) {
    const std::size_t c = channel_of(i);
    y.push_back((c == 0 ? 1.5 : -0.5) * (x_values_[i] - mean[c]) / std::sqrt(variance[c] + kEpsilon) +
                (c == 0 ? 0.25 : 2.0));
  }
  expect_near(y_memory_.values(), y, 1e-6);
  expect_near(running_mean_.values(), {0.1 * mean[0], 0.9 + 0.1 * mean[1]}, 1e-6);
  const double unbiased = kValues / (kValues - 1.0);
  expect_near(running_var_.values(), {0.9 + 0.1 * unbiased * variance[0], 1.8 + 0.1 * unbiased * variance[1]},
              1e-6);
  expect_near(saved_mean_.values(), mean, 1e-6);
  expect_near(saved_inverse_.values(),
              {1.0 / std::sqrt(variance[0] + kEpsilon), 1.0 / std::sqrt(variance[1] + kEpsilon)}, 1e-6);
}

// The judge of the gradients: the sum over y dy, in double, of which dx is the derivative.
TEST_F(BatchNorm, GivesTheGradientsOfCentralDifferences) {
  const auto sum = [&](const std::vector<double>& x, std::size_t c) {
    double mean = 0.0, variance = 0.0, result = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) mean += channel_of(i) == c ? x[i] / kValues : 0.0;
    for (std::size_t i = 0; i < x.size(); ++i)
      variance += channel_of(i) == c ? std::pow(x[i] - mean, 2) / kValues : 0.0;
    for (std::size_t i = 0; i < x.size(); ++i)
      result += channel_of(i) == c ? dy_values_[i] * (x[i] - mean) / std::sqrt(variance + kEpsilon) : 0.0;
    return result;
  };
  std::vector<double> x(x_values_.begin(), x_values_.end());
  std::vector<double> dx(x.size());
  std::vector<double> dbias(2);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = channel_of(i);
    constexpr double kStep = 1e-4;
    const double here = x[i];
    x[i] = here + kStep;
    const double above = sum(x, c);
    x[i] = here - kStep;
    dx[i] = (c == 0 ? 1.5 : -0.5) * (above - sum(x, c)) / (2.0 * kStep);
    x[i] = here;
    dbias[c] += dy_values_[i];
  }
  ASSERT_EQ(train(), CUDNN_STATUS_SUCCESS);
  for (const bool is_saved : {true, false}) {
    const Floats dscale_memory(stream_, 2);
    const Floats dbias_memory(stream_, 2);
    ASSERT_EQ(cudnnBatchNormalizationBackward(handle_, CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero, &kOne, &kZero,
                                              x_, x_memory_.get(), x_, dy_memory_.get(), x_, y_memory_.get(),
                                              small_, scale_.get(), dscale_memory.get(), dbias_memory.get(),
                                              kEpsilon, is_saved ? saved_mean_.get() : nullptr,
                                              is_saved ? saved_inverse_.get() : nullptr),
              CUDNN_STATUS_SUCCESS);
    expect_near(y_memory_.values(), dx, 1e-5);
    expect_near(dscale_memory.values(), {sum(x, 0), sum(x, 1)}, 1e-5);
    expect_near(dbias_memory.values(), dbias, 1e-5);
  }
}

TEST_F(BatchNorm, InfersWithTheStatisticsGiven) {
  ASSERT_EQ(
      cudnnBatchNormalizationForwardInference(handle_, CUDNN_BATCHNORM_SPATIAL_PERSISTENT, &kOne, &kZero, x_,
                                              x_memory_.get(), x_, y_memory_.get(), small_, scale_.get(),
                                              bias_.get(), running_mean_.get(), running_var_.get(), kEpsilon),
      CUDNN_STATUS_SUCCESS);
  const std::vector<float> y = y_memory_.values();
  EXPECT_NEAR(y[0], 1.5 * x_values_[0] / std::sqrt(1.0 + kEpsilon) + 0.25, 1e-6);
  EXPECT_NEAR(y[kPixels], -0.5 * (x_values_[kPixels] - 1.0) / std::sqrt(2.0 + kEpsilon) + 2.0, 1e-6);
}

TEST_F(BatchNorm, RefusesWhatDoesNotFit) {
  EXPECT_EQ(train(-1.0), CUDNN_STATUS_BAD_PARAM);
  describe(small_, 1, kChannels + 1, 1, 1);
  EXPECT_EQ(train(), CUDNN_STATUS_BAD_PARAM);
}

// --- Activation, pooling, softmax, bias

TEST_F(Layers, ReluWorksInPlaceAndPropagatesNanWhereTold) {
  describe(x_, 1, 1, 2, 2);
  const Floats memory(stream_, {-1.0F, 2.0F, 0.0F, kNan});
  const auto forward = [&] {
    return cudnnActivationForward(handle_, activation_, &kOne, x_, memory.get(), &kZero, x_, memory.get());
  };
  ASSERT_EQ(forward(), CUDNN_STATUS_SUCCESS);
  const std::vector<float> y = memory.values();
  EXPECT_EQ(std::vector<float>(y.begin(), y.end() - 1), (std::vector<float>{0.0F, 2.0F, 0.0F}));
  EXPECT_TRUE(std::isnan(y[3]));
  cudnnSetActivationDescriptor(activation_, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0.0);
  ASSERT_EQ(forward(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(memory.values(), (std::vector<float>{0.0F, 2.0F, 0.0F, 0.0F}));

  const Floats gradient(stream_, {5.0F, 6.0F, 7.0F, 8.0F});
  ASSERT_EQ(cudnnActivationBackward(handle_, activation_, &kOne, x_, memory.get(), x_, gradient.get(), x_,
                                    memory.get(), &kZero, x_, gradient.get()),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(gradient.values(), (std::vector<float>{0.0F, 6.0F, 0.0F, 0.0F}));
}

TEST_F(Layers, PoolingGivesTheGradientToTheFirstMaximumOnlyWhereDeterministic) {
  describe(x_, 1, 1, 2, 5);
  describe(y_, 1, 1, 1, 2);
  const Floats x(stream_, {1.0F, 3.0F, 7.0F, 7.0F, 9.0F, 3.0F, 3.0F, 7.0F, 7.0F, 9.0F});
  const Floats y(stream_, 2);
  const Floats dy(stream_, {5.0F, 6.0F});
  const Floats dx(stream_, 10);
  const auto backward = [&](cudnnPoolingMode_t mode) {
    cudnnSetPooling2dDescriptor(pooling_, mode, CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2);
    EXPECT_EQ(cudnnPoolingBackward(handle_, pooling_, &kOne, y_, y.get(), y_, dy.get(), x_, x.get(), &kZero,
                                   x_, dx.get()),
              CUDNN_STATUS_SUCCESS);
    return dx.values();
  };
  const std::vector<float> first = {0.0F, 5.0F, 6.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F};
  EXPECT_EQ(backward(CUDNN_POOLING_MAX_DETERMINISTIC), first);
  EXPECT_EQ(backward(CUDNN_POOLING_MAX_DETERMINISTIC), first);
  EXPECT_NE(backward(CUDNN_POOLING_MAX), backward(CUDNN_POOLING_MAX));
  ASSERT_EQ(cudnnPoolingForward(handle_, pooling_, &kOne, x_, x.get(), &kZero, y_, y.get()),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(y.values(), (std::vector<float>{3.0F, 7.0F}));
  int n = 0, c = 0, h = 0, w = 0;
  ASSERT_EQ(cudnnGetPooling2dForwardOutputDim(pooling_, x_, &n, &c, &h, &w), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ((std::vector<int>{n, c, h, w}), (std::vector<int>{1, 1, 1, 2}));
  describe(y_, 1, 1, 1, 3);
  EXPECT_EQ(cudnnPoolingForward(handle_, pooling_, &kOne, x_, x.get(), &kZero, y_, y.get()),
            CUDNN_STATUS_BAD_PARAM);
}

TEST_F(Layers, SoftmaxIsExactFarFromZero) {
  describe(x_, 2, 3, 1, 1);
  const Floats x(stream_, {1000.0F, 1001.0F, 1002.0F, -3.0F, 0.0F, 0.5F});
  const Floats y(stream_, 6);
  const auto run = [&](cudnnSoftmaxAlgorithm_t algorithm) {
    EXPECT_EQ(cudnnSoftmaxForward(handle_, algorithm, CUDNN_SOFTMAX_MODE_INSTANCE, &kOne, x_, x.get(), &kZero,
                                  x_, y.get()),
              CUDNN_STATUS_SUCCESS);
    return y.values();
  };
  const double sum = std::exp(-2.0) + std::exp(-1.0) + 1.0;
  EXPECT_NEAR(run(CUDNN_SOFTMAX_ACCURATE)[0], std::exp(-2.0) / sum, 1e-7);
  EXPECT_NEAR(run(CUDNN_SOFTMAX_LOG)[1], -1.0 - std::log(sum), 1e-6);
}

TEST_F(Layers, AddsABiasToEachChannelAndSumsItsGradient) {
  describe(x_, 2, 3, 1, 2);
  describe(small_, 1, 3, 1, 1);
  const Floats bias(stream_, {1.0F, 2.0F, 3.0F});
  const Floats memory(stream_, std::vector<float>(12, 10.0F));
  ASSERT_EQ(cudnnAddTensor(handle_, &kOne, small_, bias.get(), &kOne, x_, memory.get()),
            CUDNN_STATUS_SUCCESS);
  const std::vector<float> half = {11.0F, 11.0F, 12.0F, 12.0F, 13.0F, 13.0F};
  std::vector<float> expected = half;
  expected.insert(expected.end(), half.begin(), half.end());
  EXPECT_EQ(memory.values(), expected);
  ASSERT_EQ(cudnnConvolutionBackwardBias(handle_, &kOne, x_, memory.get(), &kZero, small_, bias.get()),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(bias.values(), (std::vector<float>{44.0F, 48.0F, 52.0F}));
}

// --- cuBLAS

class Blas : public testing::Test {
 protected:
  Blas() {
    cublasCreate(&handle_);
    cublasSetStream(handle_, stream_);
  }
  ~Blas() override { cublasDestroy(handle_); }

  cublasStatus_t product(const Floats& a, const Floats& b, const Floats& c, int ldc = 4) {
    return cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 4, 3, 5, &kOne, a.get(), 4, b.get(), 5, &kZero,
                       c.get(), ldc);
  }

  Stream stream_;
  cublasHandle_t handle_ = nullptr;
};

TEST_F(Blas, MultipliesInAllTranspositions) {
  constexpr int m = 4, n = 3, k = 70, lda = 73, ldb = 75, ldc = 6;
  const std::vector<float> a_values = random_values(lda * k, 1);
  const std::vector<float> b_values = random_values(ldb * k, 2);
  const std::vector<float> c_values = random_values(ldc * n, 3);
  const Floats a(stream_, a_values);
  const Floats b(stream_, b_values);
  const float alpha = 2.0F, beta = -0.5F;
  for (const auto op_a : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    for (const auto op_b : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      const Floats c(stream_, c_values);
      ASSERT_EQ(
          cublasSgemm(handle_, op_a, op_b, m, n, k, &alpha, a.get(), lda, b.get(), ldb, &beta, c.get(), ldc),
          CUBLAS_STATUS_SUCCESS);
      std::vector<double> expected(c_values.begin(), c_values.end());
      for (int j = 0; j < n; ++j)
        for (int i = 0; i < m; ++i) {
          double sum = 0.0;
          for (int l = 0; l < k; ++l)
            sum += static_cast<double>(
                       a_values[static_cast<std::size_t>(op_a == CUBLAS_OP_N ? l * lda + i : i * lda + l)]) *
                   b_values[static_cast<std::size_t>(op_b == CUBLAS_OP_N ? j * ldb + l : l * ldb + j)];
          double& target = expected[static_cast<std::size_t>(j * ldc + i)];
          target = 2.0 * sum - 0.5 * target;
        }
      expect_near(c.values(), expected, tolerance_of(2 * k));
    }
  }
}

TEST_F(Blas, RoundsToTf32WhereAsked) {
  const Floats a(stream_, std::vector<float>{1.0F + 0x1p-12F});
  const Floats b(stream_, std::vector<float>{1.0F});
  const Floats c(stream_, 1);
  const auto run = [&](cublasComputeType_t compute) {
    EXPECT_EQ(cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &kOne, a.get(), CUDA_R_32F, 1, b.get(),
                           CUDA_R_32F, 1, &kZero, c.get(), CUDA_R_32F, 1, compute, CUBLAS_GEMM_DEFAULT),
              CUBLAS_STATUS_SUCCESS);
    return c.values()[0];
  };
  EXPECT_EQ(run(CUBLAS_COMPUTE_32F), 1.0F + 0x1p-12F);
  EXPECT_EQ(run(CUBLAS_COMPUTE_32F_FAST_TF32), 1.0F);
  cublasSetMathMode(handle_, CUBLAS_TF32_TENSOR_OP_MATH);
  EXPECT_EQ(run(CUBLAS_COMPUTE_32F), 1.0F);
  EXPECT_EQ(run(CUBLAS_COMPUTE_32F_PEDANTIC), 1.0F + 0x1p-12F);
}

TEST_F(Blas, TakesBfloat16) {
  const Halves a(stream_, to_halves({1.5F, 2.0F}));
  const Halves b(stream_, to_halves({3.0F, 0x1p-9F}));
  const Floats c(stream_, 1);
  const Halves half_c(stream_, 1);
  const auto run = [&](void* target, cudaDataType type) {
    return cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 2, &kOne, a.get(), CUDA_R_16BF, 1, b.get(),
                        CUDA_R_16BF, 2, &kZero, target, type, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  };
  ASSERT_EQ(run(c.get(), CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(run(half_c.get(), CUDA_R_16BF), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(c.values()[0], 4.5F + 0x1p-8F);
  EXPECT_EQ(from_bfloat16(half_c.values()[0]), 4.5F);
  EXPECT_EQ(run(c.get(), CUDA_R_64F), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(Blas, RefusesWhatDoesNotFit) {
  const Floats a(stream_, 20);
  const Floats b(stream_, 15);
  const Floats c(stream_, 12);
  EXPECT_EQ(product(a, b, c), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product(a, b, c, 3), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_DEATH(product(a, b, c, 5), "cublasSgemm_v2: C is not .* device memory");
  EXPECT_DEATH(product(a, a, a), "C, which is written, overlaps|not .* device memory");
  EXPECT_EQ(cublasSgemm(nullptr, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &kOne, a.get(), 1, b.get(), 1, &kZero,
                        c.get(), 1),
            CUBLAS_STATUS_NOT_INITIALIZED);
  fail("cublasSgemm_v2", 1);
  EXPECT_EQ(product(a, b, c), CUBLAS_STATUS_INTERNAL_ERROR);
}

TEST_F(Blas, WantsTheUsersWorkspaceInACapturedGraph) {
  const Floats a(stream_, 20);
  const Floats b(stream_, 15);
  const Floats c(stream_, 12);
  const DeviceArray<char> workspace(stream_, 1024);
  const auto capture = [&] {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(product(a, b, c), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    cudaGraphDestroy(graph);
  };
  EXPECT_DEATH(cublasSetWorkspace(handle_, workspace.get() + 16, 512), "aligned to 256");
  EXPECT_DEATH(capture(), "captured without a workspace");
  ASSERT_EQ(cublasSetWorkspace(handle_, workspace.get(), 1024), CUBLAS_STATUS_SUCCESS);
  capture();
  cublasSetStream(handle_, stream_);  // takes the workspace away
  EXPECT_DEATH(capture(), "captured without a workspace");
}

TEST(Libraries, LeaveNothingAlive) {
  for (const auto& [kind, count] : live_objects()) {
    EXPECT_EQ(count, 0) << kind;
  }
}

}  // namespace
}  // namespace standin::libraries
