#include <cudnn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <limits>
#include <utility>
#include <vector>

#include "libraries/device_array.hpp"
#include "standin.hpp"

namespace standin::libraries {
namespace {

struct Sizes {
  int n, c, k, h, w, kernel_h, kernel_w, pad_h, pad_w, stride = 1;

  int out_h() const { return (h + 2 * pad_h - kernel_h) / stride + 1; }
  int out_w() const { return (w + 2 * pad_w - kernel_w) / stride + 1; }
  std::size_t x_count() const { return static_cast<std::size_t>(n * c * h * w); }
  std::size_t w_count() const { return static_cast<std::size_t>(k * c * kernel_h * kernel_w); }
  std::size_t y_count() const { return static_cast<std::size_t>(n * k * out_h() * out_w()); }
};

const Sizes kFive{3, 2, 4, 11, 9, 5, 5, 2, 2};
const Sizes kThree{2, 5, 3, 8, 7, 3, 3, 1, 1};
const Sizes kUneven{2, 3, 5, 12, 17, 3, 5, 1, 2, 2};
const Sizes kLarge{2, 3, 2, 40, 33, 5, 5, 2, 2};

// Calls body(place in x, place in w, place in y) for every product of the convolution.
void for_each_product(const Sizes& s,
                      const std::function<void(std::size_t, std::size_t, std::size_t)>& body) {
  std::size_t y = 0;
  for (int n = 0; n < s.n; ++n)
    for (int k = 0; k < s.k; ++k)
      for (int p = 0; p < s.out_h(); ++p)
        for (int q = 0; q < s.out_w(); ++q, ++y)
          for (int tap = 0; tap < s.c * s.kernel_h * s.kernel_w; ++tap) {
            const int c = tap / (s.kernel_h * s.kernel_w);
            const int i = p * s.stride - s.pad_h + tap / s.kernel_w % s.kernel_h;
            const int j = q * s.stride - s.pad_w + tap % s.kernel_w;
            if (i >= 0 && i < s.h && j >= 0 && j < s.w)
              body(static_cast<std::size_t>(((n * s.c + c) * s.h + i) * s.w + j),
                   static_cast<std::size_t>(k * s.c * s.kernel_h * s.kernel_w + tap), y);
          }
}

// A convolution's descriptors and tensors.
class Convolution {
 public:
  explicit Convolution(const Sizes& sizes, cudnnMathType_t math = CUDNN_FMA_MATH,
                       cudnnDataType_t type = CUDNN_DATA_FLOAT)
      : s(sizes),
        x_values(random_values(s.x_count(), 1)),
        w_values(random_values(s.w_count(), 2)),
        dy_values(random_values(s.y_count(), 3)) {
    cudnnCreate(&handle);
    cudnnSetStream(handle, stream);
    cudnnCreateTensorDescriptor(&x);
    cudnnCreateTensorDescriptor(&y);
    cudnnCreateFilterDescriptor(&w);
    cudnnCreateConvolutionDescriptor(&convolution);
    cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, type, s.n, s.c, s.h, s.w);
    cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NCHW, type, s.n, s.k, s.out_h(), s.out_w());
    cudnnSetFilter4dDescriptor(w, type, CUDNN_TENSOR_NCHW, s.k, s.c, s.kernel_h, s.kernel_w);
    cudnnSetConvolution2dDescriptor(convolution, s.pad_h, s.pad_w, s.stride, s.stride, 1, 1,
                                    CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    cudnnSetConvolutionMathType(convolution, math);
  }
  ~Convolution() {
    cudnnDestroyConvolutionDescriptor(convolution);
    cudnnDestroyFilterDescriptor(w);
    cudnnDestroyTensorDescriptor(y);
    cudnnDestroyTensorDescriptor(x);
    cudnnDestroy(handle);
  }
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;

  template <class Value>
  cudnnStatus_t forward(const Value* x_memory, const Value* w_memory, Value* y_memory,
                        cudnnConvolutionFwdAlgo_t algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                        void* workspace = nullptr, std::size_t bytes = 0) {
    return cudnnConvolutionForward(handle, &alpha, x, x_memory, w, w_memory, convolution, algorithm,
                                   workspace, bytes, &beta, y, y_memory);
  }

  std::vector<float> run_forward() {
    const Floats x_memory(stream, x_values);
    const Floats w_memory(stream, w_values);
    const Floats y_memory(stream, std::vector<float>(s.y_count(), before));
    EXPECT_EQ(forward(x_memory.get(), w_memory.get(), y_memory.get()), CUDNN_STATUS_SUCCESS);
    return y_memory.values();
  }

  std::vector<float> run_backward_data(cudnnConvolutionBwdDataAlgo_t algorithm) {
    const Floats w_memory(stream, w_values);
    const Floats dy_memory(stream, dy_values);
    const Floats dx_memory(stream, std::vector<float>(s.x_count(), before));
    std::size_t bytes = 0;
    EXPECT_EQ(cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w, y, convolution, x, algorithm, &bytes),
              CUDNN_STATUS_SUCCESS);
    const DeviceArray<char> workspace(stream, std::max<std::size_t>(bytes, 1));
    EXPECT_EQ(cudnnConvolutionBackwardData(handle, &alpha, w, w_memory.get(), y, dy_memory.get(), convolution,
                                           algorithm, workspace.get(), bytes, &beta, x, dx_memory.get()),
              CUDNN_STATUS_SUCCESS);
    return dx_memory.values();
  }

  std::vector<float> run_backward_filter(cudnnConvolutionBwdFilterAlgo_t algorithm) {
    const Floats x_memory(stream, x_values);
    const Floats dy_memory(stream, dy_values);
    const Floats dw_memory(stream, std::vector<float>(s.w_count(), before));
    std::size_t bytes = 0;
    EXPECT_EQ(cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x, y, convolution, w, algorithm, &bytes),
              CUDNN_STATUS_SUCCESS);
    const DeviceArray<char> workspace(stream, std::max<std::size_t>(bytes, 1));
    EXPECT_EQ(
        cudnnConvolutionBackwardFilter(handle, &alpha, x, x_memory.get(), y, dy_memory.get(), convolution,
                                       algorithm, workspace.get(), bytes, &beta, w, dw_memory.get()),
        CUDNN_STATUS_SUCCESS);
    return dw_memory.values();
  }

  Sizes s;
  Stream stream;
  std::vector<float> x_values;
  std::vector<float> w_values;
  std::vector<float> dy_values;
  float alpha = 1.0F;
  float beta = 0.0F;
  float before = std::numeric_limits<float>::quiet_NaN();  // what results overwrite
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t x = nullptr;
  cudnnTensorDescriptor_t y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
};

double product(float a, float b) {
  return static_cast<double>(a) * static_cast<double>(b);
}

class ConvolutionSizes : public testing::TestWithParam<Sizes> {};

TEST_P(ConvolutionSizes, GiveWhatTheDefinitionGives) {
  Convolution conv(GetParam());
  const Sizes& s = conv.s;
  std::vector<double> y(s.y_count());
  std::vector<double> dx(s.x_count());
  std::vector<double> dw(s.w_count());
  for_each_product(s, [&](std::size_t in, std::size_t weight, std::size_t out) {
    y[out] += product(conv.x_values[in], conv.w_values[weight]);
    dx[in] += product(conv.dy_values[out], conv.w_values[weight]);
    dw[weight] += product(conv.dy_values[out], conv.x_values[in]);
  });
  const auto taps = static_cast<std::size_t>(s.kernel_h * s.kernel_w);
  expect_near(conv.run_forward(), y, tolerance_of(taps * static_cast<std::size_t>(s.c)));
  for (const auto algorithm : {CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1}) {
    expect_near(conv.run_backward_data(algorithm), dx, tolerance_of(taps * static_cast<std::size_t>(s.k)));
  }
  for (const auto algorithm : {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1}) {
    expect_near(conv.run_backward_filter(algorithm), dw,
                tolerance_of(s.y_count() / static_cast<std::size_t>(s.k)));
  }
}

INSTANTIATE_TEST_SUITE_P(AllDifferent, ConvolutionSizes, testing::Values(kFive, kThree, kUneven, kLarge));

TEST(Convolution, BlendsItsResultWithWhatWasThere) {
  Convolution conv(kFive);
  const std::vector<float> plain = conv.run_forward();
  conv.alpha = 2.0F;
  conv.beta = 0.5F;
  conv.before = 3.0F;
  const std::vector<float> blended = conv.run_forward();
  for (std::size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(blended[i], 2.0F * plain[i] + 1.5F);
  }
}

TEST(Convolution, TakesBfloat16AndRoundsOnlyTheResultToIt) {
  Convolution exact(kFive);
  Convolution conv(kFive, CUDNN_DEFAULT_MATH, CUDNN_DATA_BFLOAT16);
  exact.x_values = from_halves(to_halves(exact.x_values));
  exact.w_values = from_halves(to_halves(exact.w_values));
  const Halves x(conv.stream, to_halves(conv.x_values));
  const Halves w(conv.stream, to_halves(conv.w_values));
  const Halves y(conv.stream, conv.s.y_count());
  ASSERT_EQ(conv.forward(x.get(), w.get(), y.get()), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(y.values(), to_halves(exact.run_forward()));
}

TEST(Convolution, RoundsToTf32UnlessToldNotTo) {
  const Sizes one{1, 1, 2, 4, 3, 1, 1, 0, 0};
  for (const auto math : {CUDNN_FMA_MATH, CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH}) {
    Convolution conv(one, math);
    conv.x_values.assign(one.x_count(), 1.0F);
    conv.w_values = {1.0F + 0x1p-12F, 1.0F + 0x1p-10F};
    const std::vector<float> y = conv.run_forward();
    EXPECT_EQ(y[0], math == CUDNN_FMA_MATH ? 1.0F + 0x1p-12F : 1.0F);
    EXPECT_EQ(y[12], 1.0F + 0x1p-10F);
  }
}

TEST(Convolution, GivesEqualBitsForEqualPixels) {
  Convolution conv(kFive);
  const Sizes& s = conv.s;
  std::fill(conv.x_values.begin(), conv.x_values.end(), 0.3F);
  std::fill(conv.dy_values.begin(), conv.dy_values.end(), 0.7F);
  const std::vector<float> y = conv.run_forward();
  const std::vector<float> dx = conv.run_backward_data(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
  for (const auto& [values, planes] : {std::pair(y, s.n * s.k), std::pair(dx, s.n * s.c)}) {
    for (int plane = 0; plane < planes; ++plane) {
      const auto* first = &values[static_cast<std::size_t>(plane * s.h * s.w)];
      const auto channels = planes / s.n;
      for (int row = 2; row < s.h - 2; ++row) {
        for (int column = 2; column < s.w - 2; ++column) {
          ASSERT_EQ(first[row * s.w + column],
                    values[static_cast<std::size_t>(((plane % channels) * s.h + 2) * s.w + 2)]);
        }
      }
    }
  }
}

TEST(Convolution, OnlyTheNondeterministicAlgorithmsDifferFromCallToCall) {
  Convolution conv(kFive);
  const auto data = [&](auto algorithm) { return conv.run_backward_data(algorithm); };
  const auto filter = [&](auto algorithm) { return conv.run_backward_filter(algorithm); };
  EXPECT_EQ(conv.run_forward(), conv.run_forward());
  EXPECT_NE(data(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0), data(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0));
  EXPECT_EQ(data(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1), data(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1));
  EXPECT_NE(filter(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0), filter(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0));
  EXPECT_NE(filter(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3), filter(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3));
  EXPECT_EQ(filter(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1), filter(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1));
}

// --- The choice of algorithms

TEST(ConvolutionAlgorithms, AreListedWithWhatACarelessChoiceTripsOver) {
  const Convolution conv(kFive, CUDNN_DEFAULT_MATH);
  int most = 0;
  ASSERT_EQ(cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(conv.handle, &most), CUDNN_STATUS_SUCCESS);
  std::vector<cudnnConvolutionBwdFilterAlgoPerf_t> lines(static_cast<std::size_t>(most));
  int count = 0;
  ASSERT_EQ(cudnnFindConvolutionBackwardFilterAlgorithm(conv.handle, conv.x, conv.y, conv.convolution, conv.w,
                                                        most, &count, lines.data()),
            CUDNN_STATUS_SUCCESS);
  ASSERT_GT(count, 4);
  ASSERT_LE(count, most);
  EXPECT_EQ(lines[0].determinism, CUDNN_NON_DETERMINISTIC);
  EXPECT_GT(lines[0].memory, 0U);
  EXPECT_EQ(lines[2].determinism, CUDNN_DETERMINISTIC);
  EXPECT_EQ(lines[2].mathType, CUDNN_TENSOR_OP_MATH);
  EXPECT_EQ(lines[3].mathType, CUDNN_FMA_MATH);
  EXPECT_LT(lines[0].time, lines[1].time);
  EXPECT_EQ(lines[static_cast<std::size_t>(count) - 1].status, CUDNN_STATUS_NOT_SUPPORTED);
  ASSERT_EQ(cudnnFindConvolutionBackwardFilterAlgorithm(conv.handle, conv.x, conv.y, conv.convolution, conv.w,
                                                        1, &count, lines.data()),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(count, 1);
}

TEST(ConvolutionAlgorithms, KeepAwayFromTensorCoresWithFmaMath) {
  const Convolution conv(kFive, CUDNN_FMA_MATH);
  std::vector<cudnnConvolutionFwdAlgoPerf_t> lines(20);
  int count = 0;
  ASSERT_EQ(cudnnGetConvolutionForwardAlgorithm_v7(conv.handle, conv.x, conv.w, conv.convolution, conv.y, 20,
                                                   &count, lines.data()),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(count, CUDNN_CONVOLUTION_FWD_ALGO_COUNT);
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(lines[static_cast<std::size_t>(i)].mathType, CUDNN_FMA_MATH);
  }
}

// --- What is refused

TEST(ConvolutionRefusals, OfDescriptorsThatDisagree) {
  Convolution conv(kFive);
  const Floats x(conv.stream, conv.x_values);
  const Floats w(conv.stream, conv.w_values);
  const Floats y(conv.stream, conv.s.y_count());
  const auto status = [&] { return conv.forward(x.get(), w.get(), y.get()); };
  const Sizes& s = conv.s;
  EXPECT_EQ(status(), CUDNN_STATUS_SUCCESS);
  cudnnSetTensor4dDescriptor(conv.y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, s.n, s.k, s.out_w(), s.out_h());
  EXPECT_EQ(status(), CUDNN_STATUS_BAD_PARAM);
  cudnnSetTensor4dDescriptor(conv.y, CUDNN_TENSOR_NCHW, CUDNN_DATA_BFLOAT16, s.n, s.k, s.out_h(), s.out_w());
  EXPECT_EQ(status(), CUDNN_STATUS_BAD_PARAM);
  cudnnSetTensor4dDescriptor(conv.y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, s.n, s.k, s.out_h(), s.out_w());
  EXPECT_EQ(status(), CUDNN_STATUS_NOT_SUPPORTED);
  cudnnSetTensor4dDescriptor(conv.y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, s.n, s.k, s.out_h(), s.out_w());
  cudnnSetFilter4dDescriptor(conv.w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, s.k, s.c + 1, 5, 5);
  EXPECT_EQ(status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnSetTensor4dDescriptor(conv.x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 0, 1, 1, 1),
            CUDNN_STATUS_BAD_PARAM);
}

TEST(ConvolutionRefusals, OfUnsupportedAlgorithmsAndSmallWorkspaces) {
  Convolution conv(kFive);
  const Floats x(conv.stream, conv.x_values);
  const Floats w(conv.stream, conv.w_values);
  const Floats y(conv.stream, conv.s.y_count());
  const auto status = [&](cudnnConvolutionFwdAlgo_t algorithm, void* workspace, std::size_t bytes) {
    return conv.forward(x.get(), w.get(), y.get(), algorithm, workspace, bytes);
  };
  std::size_t bytes = 0;
  EXPECT_EQ(cudnnGetConvolutionForwardWorkspaceSize(conv.handle, conv.x, conv.w, conv.convolution, conv.y,
                                                    CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, &bytes),
            CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status(CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, nullptr, 0), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status(CUDNN_CONVOLUTION_FWD_ALGO_COUNT, nullptr, 0), CUDNN_STATUS_BAD_PARAM);

  constexpr auto kPrecomputed = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  ASSERT_EQ(cudnnGetConvolutionForwardWorkspaceSize(conv.handle, conv.x, conv.w, conv.convolution, conv.y,
                                                    kPrecomputed, &bytes),
            CUDNN_STATUS_SUCCESS);
  ASSERT_GT(bytes, 0U);
  const DeviceArray<char> workspace(conv.stream, bytes + 16);
  EXPECT_EQ(status(kPrecomputed, workspace.get(), bytes - 1), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status(kPrecomputed, nullptr, bytes), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status(kPrecomputed, workspace.get(), bytes), CUDNN_STATUS_SUCCESS);
  EXPECT_DEATH(status(kPrecomputed, workspace.get() + 8, bytes), "workSpace is not aligned to 16 bytes");
}

TEST(ConvolutionViolations, EndTheProgram) {
  Convolution conv(kFive);
  const Floats x(conv.stream, conv.x_values);
  const Floats w(conv.stream, conv.w_values);
  const Floats y(conv.stream, conv.s.y_count());
  const Floats small(conv.stream, conv.s.y_count() - 1);
  std::vector<float> host(conv.s.y_count());
  EXPECT_DEATH(conv.forward(x.get(), w.get(), small.get()),
               "cudnnConvolutionForward: y is not .* device memory");
  EXPECT_DEATH(conv.forward(x.get(), w.get(), host.data()),
               "cudnnConvolutionForward: y is not .* device memory");
  const auto* odd = reinterpret_cast<const float*>(reinterpret_cast<const char*>(x.get()) + 2);
  EXPECT_DEATH(conv.forward(odd, w.get(), y.get()), "x is not aligned to 4 bytes");
  EXPECT_DEATH(conv.forward(y.get(), w.get(), y.get()), "overlaps|not .* device memory");
  EXPECT_DEATH(
      {
        cudnnHandle_t gone = nullptr;
        cudnnCreate(&gone);
        cudnnDestroy(gone);
        cudnnSetStream(gone, conv.stream);
      },
      "cudnnHandle_t");
}

TEST(Cudnn, FailsWhereATestSaysSo) {
  Convolution conv(kThree);
  fail("cudnnConvolutionForward", 1);
  EXPECT_EQ(conv.forward<float>(nullptr, nullptr, nullptr), CUDNN_STATUS_INTERNAL_ERROR);
  EXPECT_EQ(conv.forward<float>(nullptr, nullptr, nullptr), CUDNN_STATUS_BAD_PARAM);
  std::vector<char> text(64);
  cudnnGetLastErrorString(text.data(), text.size());
  EXPECT_STREQ(text.data(), "cudnnConvolutionForward: a tensor is null");
}

// The convolutions of a training step of the real network at batch 100. Not a check: machines differ.
TEST(ConvolutionSpeed, OfAStep) {
  const auto start = std::chrono::steady_clock::now();
  for (const Sizes& sizes : {Sizes{100, 1, 16, 28, 28, 5, 5, 2, 2}, Sizes{100, 16, 32, 14, 14, 5, 5, 2, 2}}) {
    Convolution conv(sizes);
    conv.run_forward();
    conv.run_backward_filter(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
    conv.run_backward_data(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  std::cout << "the convolutions of a step at batch 100: " << time.count() << " s\n";
}

}  // namespace
}  // namespace standin::libraries
