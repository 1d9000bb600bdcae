#include <algorithm>
#include <utility>

#include "libraries/cudnn_convolution.hpp"

// cuDNN's choice of algorithms. The lists hold what a careless choice trips over: the fastest of the backward
// algorithms are not deterministic, the same algorithm comes with and without tensor cores, several want a
// workspace, and some are not supported at all.

namespace standin::libraries {
namespace {

std::size_t activation_bytes(const ConvolutionCall& call) {
  return (call.x->count() + call.y->count()) * sizeof(float);
}

// A workspace of the size that the unfolded input would take.
std::size_t unfolded_bytes(const ConvolutionCall& call) {
  return call.x->n * call.y->pixels() * call.w->count() / static_cast<std::size_t>(call.w->k) * sizeof(float);
}

std::vector<Algorithm> forward_algorithms(const ConvolutionCall& call) {
  const bool is_float = call.type == Type::kFloat;
  const bool is_3x3 = call.w->h == 3 && call.w->w == 3;
  const bool is_5x5 = call.w->h == 5 && call.w->w == 5;
  const std::size_t activations = activation_bytes(call);
  return {
      {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, true, true, true, 4096 + call.filter_bytes()},
      {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, is_float && is_3x3, true, false, 0},
      {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, is_float && (is_3x3 || is_5x5), true, true, activations},
      {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, true, true, false, 0},
      {CUDNN_CONVOLUTION_FWD_ALGO_GEMM, is_float, true, false, unfolded_bytes(call)},
      {CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING, is_float, true, false, 2 * activations},
      {CUDNN_CONVOLUTION_FWD_ALGO_FFT, is_float, true, false, 4 * activations},
      {CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, false, true, false, 0},
  };
}

std::vector<Algorithm> backward_data_algorithms(const ConvolutionCall& call) {
  const bool is_float = call.type == Type::kFloat;
  const bool is_3x3 = call.w->h == 3 && call.w->w == 3;
  const bool is_5x5 = call.w->h == 5 && call.w->w == 5;
  const std::size_t activations = activation_bytes(call);
  return {
      {CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, true, false, false, 0},
      {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, true, true, true, 8192 + call.filter_bytes()},
      {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD, is_float && is_3x3, true, false, 4096},
      {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED, is_float && (is_3x3 || is_5x5), true, true,
       activations},
      {CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING, is_float, true, false, 2 * activations},
      {CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, is_float, true, false, 4 * activations},
  };
}

std::vector<Algorithm> backward_filter_algorithms(const ConvolutionCall& call) {
  const bool is_float = call.type == Type::kFloat;
  const bool is_3x3 = call.w->h == 3 && call.w->w == 3;
  const bool is_5x5 = call.w->h == 5 && call.w->w == 5;
  const std::size_t activations = activation_bytes(call);
  return {
      {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, is_float, false, false, 2 * call.filter_bytes()},
      {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, true, false, false, 0},
      {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, true, true, true, 16384 + 4 * call.filter_bytes()},
      {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED, is_float && (is_3x3 || is_5x5), true, true,
       activations},
      {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING, is_float, true, false, 2 * activations},
      {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, is_float, true, false, 4 * activations},
      {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD, false, true, false, 0},
  };
}

// One line of what cuDNN tells about an algorithm; time is -1 where nothing was measured.
template <class Performance>
Performance performance(const Algorithm& algorithm, cudnnMathType_t math, float time) {
  Performance result{};
  result.algo = static_cast<decltype(result.algo)>(algorithm.number);
  result.status = algorithm.is_supported ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
  result.time = algorithm.is_supported ? time : -1.0F;
  result.memory = algorithm.is_supported ? algorithm.workspace : 0;
  result.determinism = algorithm.is_deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
  result.mathType = math;
  return result;
}

// With tensor cores first where the descriptor allows them, then without.
template <class Performance>
void list_algorithms(Operation operation, const ConvolutionCall& call, bool is_measured, int requested,
                     int* returned, Performance* results) {
  require_pointer(returned, "returnedAlgoCount");
  require_pointer(results, "perfResults");
  require_parameter(requested > 0, "requestedAlgoCount is not positive");
  const bool allows_tensor_cores = call.convolution->math_type != CUDNN_FMA_MATH;
  std::vector<Performance> lines;
  const auto add = [&](const Algorithm& algorithm, cudnnMathType_t math) {
    const float time = is_measured ? 0.01F * static_cast<float>(lines.size() + 1) : -1.0F;
    lines.push_back(performance<Performance>(algorithm, math, time));
  };
  for (const Algorithm& algorithm : algorithms(operation, call)) {
    if (algorithm.is_supported && algorithm.has_tensor_cores && allows_tensor_cores) {
      add(algorithm, CUDNN_TENSOR_OP_MATH);
    }
    add(algorithm, CUDNN_FMA_MATH);
  }
  *returned = std::min(requested, static_cast<int>(lines.size()));
  std::copy_n(lines.begin(), *returned, results);
}

// The documented count: each algorithm with and without tensor cores.
void tell_count(cudnnHandle_t handle, int algorithm_count, int* count, const char* call) {
  alive(handle, call);
  require_pointer(count, "count");
  *count = 2 * algorithm_count;
}

}  // namespace

std::vector<Algorithm> algorithms(Operation operation, const ConvolutionCall& call) {
  std::vector<Algorithm> result = operation == Operation::kForward        ? forward_algorithms(call)
                                  : operation == Operation::kBackwardData ? backward_data_algorithms(call)
                                                                          : backward_filter_algorithms(call);
  std::stable_partition(result.begin(), result.end(), [](const Algorithm& a) { return a.is_supported; });
  return result;
}

Algorithm chosen(Operation operation, const ConvolutionCall& call, int number) {
  for (const Algorithm& algorithm : algorithms(operation, call)) {
    if (algorithm.number == number) {
      require_supported(algorithm.is_supported, "algorithm " + std::to_string(number) + " is not supported");
      return algorithm;
    }
  }
  throw Refused(CUDNN_STATUS_BAD_PARAM, "there is no algorithm " + std::to_string(number));
}

}  // namespace standin::libraries

using namespace standin::libraries;

extern "C" {

cudnnStatus_t cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t handle, int* count) {
  constexpr const char* kCall = "cudnnGetConvolutionForwardAlgorithmMaxCount";
  return entry(kCall, [&] { tell_count(handle, CUDNN_CONVOLUTION_FWD_ALGO_COUNT, count, kCall); });
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t handle, int* count) {
  constexpr const char* kCall = "cudnnGetConvolutionBackwardDataAlgorithmMaxCount";
  return entry(kCall, [&] { tell_count(handle, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, count, kCall); });
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(cudnnHandle_t handle, int* count) {
  constexpr const char* kCall = "cudnnGetConvolutionBackwardFilterAlgorithmMaxCount";
  return entry(kCall, [&] { tell_count(handle, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, count, kCall); });
}

// --- By rules of thumb

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t convolution,
                                                     const cudnnTensorDescriptor_t y, const int requested,
                                                     int* returned, cudnnConvolutionFwdAlgoPerf_t* results) {
  constexpr const char* kCall = "cudnnGetConvolutionForwardAlgorithm_v7";
  return entry(kCall, [&] {
    alive(handle, kCall);
    const ConvolutionCall call = agreed(kCall, x, w, convolution, y);
    list_algorithms(Operation::kForward, call, false, requested, returned, results);
  });
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx, const int requested,
    int* returned, cudnnConvolutionBwdDataAlgoPerf_t* results) {
  constexpr const char* kCall = "cudnnGetConvolutionBackwardDataAlgorithm_v7";
  return entry(kCall, [&] {
    alive(handle, kCall);
    const ConvolutionCall call = agreed(kCall, dx, w, convolution, dy);
    list_algorithms(Operation::kBackwardData, call, false, requested, returned, results);
  });
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw, const int requested,
    int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  constexpr const char* kCall = "cudnnGetConvolutionBackwardFilterAlgorithm_v7";
  return entry(kCall, [&] {
    alive(handle, kCall);
    const ConvolutionCall call = agreed(kCall, x, dw, convolution, dy);
    list_algorithms(Operation::kBackwardFilter, call, false, requested, returned, results);
  });
}

// --- By trying them, on memory that they allocate

cudnnStatus_t cudnnFindConvolutionForwardAlgorithm(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                   const cudnnFilterDescriptor_t w,
                                                   const cudnnConvolutionDescriptor_t convolution,
                                                   const cudnnTensorDescriptor_t y, const int requested,
                                                   int* returned, cudnnConvolutionFwdAlgoPerf_t* results) {
  constexpr const char* kCall = "cudnnFindConvolutionForwardAlgorithm";
  return entry(kCall, [&] {
    standin::forbid_while_capturing(kCall);
    alive(handle, kCall);
    const ConvolutionCall call = agreed(kCall, x, w, convolution, y);
    list_algorithms(Operation::kForward, call, true, requested, returned, results);
  });
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithm(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                        const cudnnTensorDescriptor_t dy,
                                                        const cudnnConvolutionDescriptor_t convolution,
                                                        const cudnnTensorDescriptor_t dx, const int requested,
                                                        int* returned,
                                                        cudnnConvolutionBwdDataAlgoPerf_t* results) {
  constexpr const char* kCall = "cudnnFindConvolutionBackwardDataAlgorithm";
  return entry(kCall, [&] {
    standin::forbid_while_capturing(kCall);
    alive(handle, kCall);
    const ConvolutionCall call = agreed(kCall, dx, w, convolution, dy);
    list_algorithms(Operation::kBackwardData, call, true, requested, returned, results);
  });
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithm(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw, const int requested,
    int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  constexpr const char* kCall = "cudnnFindConvolutionBackwardFilterAlgorithm";
  return entry(kCall, [&] {
    standin::forbid_while_capturing(kCall);
    alive(handle, kCall);
    const ConvolutionCall call = agreed(kCall, x, dw, convolution, dy);
    list_algorithms(Operation::kBackwardFilter, call, true, requested, returned, results);
  });
}

// --- Workspaces

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w,
                                                      const cudnnConvolutionDescriptor_t convolution,
                                                      const cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
  constexpr const char* kCall = "cudnnGetConvolutionForwardWorkspaceSize";
  return entry(kCall, [&] {
    alive(handle, kCall);
    require_pointer(bytes, "sizeInBytes");
    const ConvolutionCall call = agreed(kCall, x, w, convolution, y);
    *bytes = chosen(Operation::kForward, call, algorithm).workspace;
  });
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  constexpr const char* kCall = "cudnnGetConvolutionBackwardDataWorkspaceSize";
  return entry(kCall, [&] {
    alive(handle, kCall);
    require_pointer(bytes, "sizeInBytes");
    const ConvolutionCall call = agreed(kCall, dx, w, convolution, dy);
    *bytes = chosen(Operation::kBackwardData, call, algorithm).workspace;
  });
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  constexpr const char* kCall = "cudnnGetConvolutionBackwardFilterWorkspaceSize";
  return entry(kCall, [&] {
    alive(handle, kCall);
    require_pointer(bytes, "sizeInBytes");
    const ConvolutionCall call = agreed(kCall, x, dw, convolution, dy);
    *bytes = chosen(Operation::kBackwardFilter, call, algorithm).workspace;
  });
}

}  // extern "C"
