#include "compute/cuda/convolution.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "convnet/error.hpp"

namespace convnet::cuda {
namespace {

constexpr std::size_t kMostWorkspace = std::size_t{256} << 20;  // bytes
constexpr int kMostAlgorithms = 16;                             // more than cuDNN has of any kind
constexpr float kOne = 1.0F;
constexpr float kZero = 0.0F;

cudnnDataType_t data_type(Precision precision) {
  return precision == Precision::kBf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

// The math that cuDNN may use: without FMA_MATH it would take TF32 for float by itself.
cudnnMathType_t math_type(Precision precision) {
  return precision == Precision::kFp32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
}

ConvolutionDescriptor describe_convolution(const ConvBlock& block, cudnnMathType_t math) {
  auto descriptor = make_handle<ConvolutionDescriptor>("cudnnCreateConvolutionDescriptor",
                                                       cudnnCreateConvolutionDescriptor);
  constexpr int kStep = 1;
  check(cudnnSetConvolution2dDescriptor(descriptor.get(), block.padding, block.padding, kStep, kStep, kStep,
                                        kStep, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
        "cudnnSetConvolution2dDescriptor");
  check(cudnnSetConvolutionMathType(descriptor.get(), math), "cudnnSetConvolutionMathType");
  return descriptor;
}

FilterDescriptor describe_weights(const ConvBlock& block, int in_channels, Precision precision) {
  auto descriptor = make_handle<FilterDescriptor>("cudnnCreateFilterDescriptor", cudnnCreateFilterDescriptor);
  check(cudnnSetFilter4dDescriptor(descriptor.get(), data_type(precision), CUDNN_TENSOR_NCHW,
                                   block.out_channels, in_channels, block.kernel, block.kernel),
        "cudnnSetFilter4dDescriptor");
  return descriptor;
}

// The names and functions of one pass, so that choosing is written once.
template <class Performance>
struct Chooser {
  const char* heuristics_name;
  const char* measurement_name;
  const char* workspace_name;
  // Fill candidates, best first, and say how many there are.
  cudnnStatus_t (*heuristics)(cudnnHandle_t, const ConvolutionPlan&, cudnnConvolutionDescriptor_t, int, int*,
                              Performance*);
  cudnnStatus_t (*measurement)(cudnnHandle_t, const ConvolutionPlan&, cudnnConvolutionDescriptor_t, int, int*,
                               Performance*);
  // What an algorithm needs with the descriptor that it is to run with.
  cudnnStatus_t (*workspace)(cudnnHandle_t, const ConvolutionPlan&, cudnnConvolutionDescriptor_t,
                             decltype(Performance::algo), std::size_t*);
};

constexpr Chooser<cudnnConvolutionFwdAlgoPerf_t> kForward{
    "cudnnGetConvolutionForwardAlgorithm_v7",
    "cudnnFindConvolutionForwardAlgorithm",
    "cudnnGetConvolutionForwardWorkspaceSize",
    [](cudnnHandle_t cudnn, const ConvolutionPlan& plan, cudnnConvolutionDescriptor_t descriptor, int most,
       int* count, cudnnConvolutionFwdAlgoPerf_t* found) {
      return cudnnGetConvolutionForwardAlgorithm_v7(cudnn, plan.x.get(), plan.weights.get(), descriptor,
                                                    plan.y.get(), most, count, found);
    },
    [](cudnnHandle_t cudnn, const ConvolutionPlan& plan, cudnnConvolutionDescriptor_t descriptor, int most,
       int* count, cudnnConvolutionFwdAlgoPerf_t* found) {
      return cudnnFindConvolutionForwardAlgorithm(cudnn, plan.x.get(), plan.weights.get(), descriptor,
                                                  plan.y.get(), most, count, found);
    },
    [](cudnnHandle_t cudnn, const ConvolutionPlan& plan, cudnnConvolutionDescriptor_t descriptor,
       cudnnConvolutionFwdAlgo_t algorithm, std::size_t* bytes) {
      return cudnnGetConvolutionForwardWorkspaceSize(cudnn, plan.x.get(), plan.weights.get(), descriptor,
                                                     plan.y.get(), algorithm, bytes);
    }};

constexpr Chooser<cudnnConvolutionBwdFilterAlgoPerf_t> kWeightGradient{
    "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
    "cudnnFindConvolutionBackwardFilterAlgorithm",
    "cudnnGetConvolutionBackwardFilterWorkspaceSize",
    [](cudnnHandle_t cudnn, const ConvolutionPlan& plan, cudnnConvolutionDescriptor_t descriptor, int most,
       int* count, cudnnConvolutionBwdFilterAlgoPerf_t* found) {
      return cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnn, plan.x.get(), plan.y.get(), descriptor,
                                                           plan.weights.get(), most, count, found);
    },
    [](cudnnHandle_t cudnn, const ConvolutionPlan& plan, cudnnConvolutionDescriptor_t descriptor, int most,
       int* count, cudnnConvolutionBwdFilterAlgoPerf_t* found) {
      return cudnnFindConvolutionBackwardFilterAlgorithm(cudnn, plan.x.get(), plan.y.get(), descriptor,
                                                         plan.weights.get(), most, count, found);
    },
    [](cudnnHandle_t cudnn, const ConvolutionPlan& plan, cudnnConvolutionDescriptor_t descriptor,
       cudnnConvolutionBwdFilterAlgo_t algorithm, std::size_t* bytes) {
      return cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnn, plan.x.get(), plan.y.get(), descriptor,
                                                            plan.weights.get(), algorithm, bytes);
    }};

constexpr Chooser<cudnnConvolutionBwdDataAlgoPerf_t> kDataGradient{
    "cudnnGetConvolutionBackwardDataAlgorithm_v7",
    "cudnnFindConvolutionBackwardDataAlgorithm",
    "cudnnGetConvolutionBackwardDataWorkspaceSize",
    [](cudnnHandle_t cudnn, const ConvolutionPlan& plan, cudnnConvolutionDescriptor_t descriptor, int most,
       int* count, cudnnConvolutionBwdDataAlgoPerf_t* found) {
      return cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnn, plan.weights.get(), plan.y.get(), descriptor,
                                                         plan.x.get(), most, count, found);
    },
    [](cudnnHandle_t cudnn, const ConvolutionPlan& plan, cudnnConvolutionDescriptor_t descriptor, int most,
       int* count, cudnnConvolutionBwdDataAlgoPerf_t* found) {
      return cudnnFindConvolutionBackwardDataAlgorithm(cudnn, plan.weights.get(), plan.y.get(), descriptor,
                                                       plan.x.get(), most, count, found);
    },
    [](cudnnHandle_t cudnn, const ConvolutionPlan& plan, cudnnConvolutionDescriptor_t descriptor,
       cudnnConvolutionBwdDataAlgo_t algorithm, std::size_t* bytes) {
      return cudnnGetConvolutionBackwardDataWorkspaceSize(cudnn, plan.weights.get(), plan.y.get(), descriptor,
                                                          plan.x.get(), algorithm, bytes);
    }};

// The best candidate that works with the math that is allowed, fits into the workspace and, where asked for,
// gives the same bits again.
template <class Pass, class Performance>
Pass choose(cudnnHandle_t cudnn, const ConvolutionPlan& plan, const ConvBlock& block,
            const CudaOptions& options, const Chooser<Performance>& chooser) {
  const cudnnMathType_t allowed = math_type(options.precision);
  const ConvolutionDescriptor general = describe_convolution(block, allowed);
  std::array<Performance, kMostAlgorithms> found{};
  int count = 0;
  check((options.autotune ? chooser.measurement : chooser.heuristics)(cudnn, plan, general.get(),
                                                                      kMostAlgorithms, &count, found.data()),
        options.autotune ? chooser.measurement_name : chooser.heuristics_name);
  for (const Performance& candidate : std::span(found).first(static_cast<std::size_t>(count))) {
    if (candidate.status != CUDNN_STATUS_SUCCESS ||
        (options.deterministic && candidate.determinism != CUDNN_DETERMINISTIC)) {
      continue;
    }
    Pass pass{describe_convolution(block, allowed == CUDNN_FMA_MATH ? allowed : candidate.mathType),
              candidate.algo, 0};
    const cudnnStatus_t status =
        chooser.workspace(cudnn, plan, pass.descriptor.get(), pass.algorithm, &pass.workspace_bytes);
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) {
      continue;
    }
    check(status, chooser.workspace_name);
    if (pass.workspace_bytes <= kMostWorkspace) {
      return pass;
    }
  }
  throw Error(ExitCode::kUnavailable,
              std::string(chooser.heuristics_name) + ": cuDNN has no " +
                  (options.deterministic ? "deterministic " : "") +
                  "algorithm for this convolution; expected one that works in 256 MiB of workspace");
}

}  // namespace

TensorDescriptor describe_images(int batch, const ImageShape& shape, Precision precision) {
  auto descriptor = make_handle<TensorDescriptor>("cudnnCreateTensorDescriptor", cudnnCreateTensorDescriptor);
  check(cudnnSetTensor4dDescriptor(descriptor.get(), CUDNN_TENSOR_NCHW, data_type(precision), batch,
                                   shape.channels, shape.height, shape.width),
        "cudnnSetTensor4dDescriptor");
  return descriptor;
}

std::size_t ConvolutionPlan::workspace_bytes() const {
  return std::max({forward.workspace_bytes, weight_gradient.workspace_bytes, data_gradient.workspace_bytes});
}

ConvolutionPlan plan_convolution(cudnnHandle_t cudnn, const ImageShape& input, const ConvBlock& block,
                                 int batch, DataGradient data_gradient, const CudaOptions& options) {
  ConvolutionPlan plan;
  plan.x = describe_images(batch, input, options.precision);
  plan.y = describe_images(batch, block.convolved(input), options.precision);
  plan.weights = describe_weights(block, input.channels, options.precision);
  plan.forward = choose<decltype(plan.forward)>(cudnn, plan, block, options, kForward);
  plan.weight_gradient = choose<decltype(plan.weight_gradient)>(cudnn, plan, block, options, kWeightGradient);
  if (data_gradient == DataGradient::kNeeded) {
    plan.data_gradient = choose<decltype(plan.data_gradient)>(cudnn, plan, block, options, kDataGradient);
  }
  return plan;
}

void convolve(cudnnHandle_t cudnn, const ConvolutionPlan& plan, const void* x, const void* weights, void* y,
              void* workspace) {
  const auto& pass = plan.forward;
  check(cudnnConvolutionForward(cudnn, &kOne, plan.x.get(), x, plan.weights.get(), weights,
                                pass.descriptor.get(), pass.algorithm, workspace, pass.workspace_bytes,
                                &kZero, plan.y.get(), y),
        "cudnnConvolutionForward");
}

void convolve_weight_gradient(cudnnHandle_t cudnn, const ConvolutionPlan& plan, const void* x, const void* dy,
                              void* dweights, void* workspace) {
  const auto& pass = plan.weight_gradient;
  check(cudnnConvolutionBackwardFilter(cudnn, &kOne, plan.x.get(), x, plan.y.get(), dy, pass.descriptor.get(),
                                       pass.algorithm, workspace, pass.workspace_bytes, &kZero,
                                       plan.weights.get(), dweights),
        "cudnnConvolutionBackwardFilter");
}

void convolve_data_gradient(cudnnHandle_t cudnn, const ConvolutionPlan& plan, const void* dy,
                            const void* weights, void* dx, void* workspace) {
  const auto& pass = plan.data_gradient;
  check(cudnnConvolutionBackwardData(cudnn, &kOne, plan.weights.get(), weights, plan.y.get(), dy,
                                     pass.descriptor.get(), pass.algorithm, workspace, pass.workspace_bytes,
                                     &kZero, plan.x.get(), dx),
        "cudnnConvolutionBackwardData");
}

}  // namespace convnet::cuda
