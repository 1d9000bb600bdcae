#include "compute/cuda/convolution.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <type_traits>

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

// The names and functions with which cuDNN chooses for one pass. They differ in the descriptors that they
// take: two before that of the convolution, one behind it.
template <class Performance, class First, class Second, class Third>
struct Chooser {
  using List = cudnnStatus_t(cudnnHandle_t, First, Second, cudnnConvolutionDescriptor_t, Third, int, int*,
                             Performance*);
  using Workspace = cudnnStatus_t(cudnnHandle_t, First, Second, cudnnConvolutionDescriptor_t, Third,
                                  decltype(Performance::algo), std::size_t*);

  // Fill candidates, best first, and say how many there are.
  const char* heuristics_name;
  List* heuristics;
  const char* measurement_name;
  List* measurement;
  // What an algorithm needs with the descriptor that it is to run with.
  const char* workspace_name;
  Workspace* workspace;
};

constexpr Chooser<cudnnConvolutionFwdAlgoPerf_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                  cudnnTensorDescriptor_t>
    kForward{"cudnnGetConvolutionForwardAlgorithm_v7",  cudnnGetConvolutionForwardAlgorithm_v7,
             "cudnnFindConvolutionForwardAlgorithm",    cudnnFindConvolutionForwardAlgorithm,
             "cudnnGetConvolutionForwardWorkspaceSize", cudnnGetConvolutionForwardWorkspaceSize};

constexpr Chooser<cudnnConvolutionBwdFilterAlgoPerf_t, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t,
                  cudnnFilterDescriptor_t>
    kWeightGradient{
        "cudnnGetConvolutionBackwardFilterAlgorithm_v7",  cudnnGetConvolutionBackwardFilterAlgorithm_v7,
        "cudnnFindConvolutionBackwardFilterAlgorithm",    cudnnFindConvolutionBackwardFilterAlgorithm,
        "cudnnGetConvolutionBackwardFilterWorkspaceSize", cudnnGetConvolutionBackwardFilterWorkspaceSize};

constexpr Chooser<cudnnConvolutionBwdDataAlgoPerf_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t,
                  cudnnTensorDescriptor_t>
    kDataGradient{
        "cudnnGetConvolutionBackwardDataAlgorithm_v7",  cudnnGetConvolutionBackwardDataAlgorithm_v7,
        "cudnnFindConvolutionBackwardDataAlgorithm",    cudnnFindConvolutionBackwardDataAlgorithm,
        "cudnnGetConvolutionBackwardDataWorkspaceSize", cudnnGetConvolutionBackwardDataWorkspaceSize};

// The best candidate that works with the math that is allowed, fits into the workspace and, where asked for,
// gives the same bits again. The descriptors are those that the chooser's functions take, in their order.
template <class Performance, class First, class Second, class Third>
ConvolutionPass<decltype(Performance::algo)> choose(cudnnHandle_t cudnn,
                                                    const Chooser<Performance, First, Second, Third>& chooser,
                                                    std::type_identity_t<First> first,
                                                    std::type_identity_t<Second> second,
                                                    std::type_identity_t<Third> third, const ConvBlock& block,
                                                    const CudaOptions& options) {
  const cudnnMathType_t allowed = math_type(options.precision);
  const ConvolutionDescriptor general = describe_convolution(block, allowed);
  std::array<Performance, kMostAlgorithms> found{};
  int count = 0;
  check((options.autotune ? chooser.measurement : chooser.heuristics)(
            cudnn, first, second, general.get(), third, kMostAlgorithms, &count, found.data()),
        options.autotune ? chooser.measurement_name : chooser.heuristics_name);
  for (const Performance& candidate : std::span(found).first(static_cast<std::size_t>(count))) {
    if (candidate.status != CUDNN_STATUS_SUCCESS ||
        (options.deterministic && candidate.determinism != CUDNN_DETERMINISTIC)) {
      continue;
    }
    ConvolutionPass<decltype(Performance::algo)> pass{
        describe_convolution(block, allowed == CUDNN_FMA_MATH ? allowed : candidate.mathType), candidate.algo,
        0};
    const cudnnStatus_t status = chooser.workspace(cudnn, first, second, pass.descriptor.get(), third,
                                                   pass.algorithm, &pass.workspace_bytes);
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
  plan.forward = choose(cudnn, kForward, plan.x.get(), plan.weights.get(), plan.y.get(), block, options);
  plan.weight_gradient =
      choose(cudnn, kWeightGradient, plan.x.get(), plan.y.get(), plan.weights.get(), block, options);
  if (data_gradient == DataGradient::kNeeded) {
    plan.data_gradient =
        choose(cudnn, kDataGradient, plan.weights.get(), plan.y.get(), plan.x.get(), block, options);
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
