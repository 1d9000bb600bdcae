#include "libraries/cudnn_descriptors.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

namespace standin::libraries {
namespace {

std::string& last_error() {
  static std::string text;
  return text;
}

template <class Object>
void create(Object** object) {
  require_pointer(object, "the result");
  *object = std::make_unique<Object>().release();
  object_made(kKind<Object>, *object);
}

template <class Object>
void destroy(Object* object) {
  require_pointer(object, kKind<Object>);
  object_gone(kKind<Object>, object);
  const std::unique_ptr<Object> owned(object);
}

// cuDNN takes dimensions of at least 1, and tensors of less than 2^31 elements.
void require_dimensions(int first, int second, int third, int fourth) {
  require_parameter(std::min({first, second, third, fourth}) > 0, "a dimension is not positive");
  const double count = 1.0 * first * second * third * fourth;
  require_supported(count <= std::numeric_limits<int>::max(), "2^31 elements or more");
}

void require_known_format(cudnnTensorFormat_t format, cudnnDataType_t type) {
  require_parameter(format >= CUDNN_TENSOR_NCHW && format <= CUDNN_TENSOR_NCHW_VECT_C, "no such format");
  require_parameter(type >= CUDNN_DATA_FLOAT && type <= CUDNN_DATA_COMPLEX_FP64, "no such data type");
}

// How many steps a window makes: no fewer than one, or the descriptor does not fit the tensor.
int output_size(int size, int pad, int window, int stride) {
  const int room = size + 2 * pad - window;
  require_parameter(room >= 0, "the window is larger than the padded tensor");
  return room / stride + 1;
}

}  // namespace

cudnnStatus_t remember(cudnnStatus_t status, const std::string& text) {
  last_error() = text;
  return status;
}

Type element_type(cudnnTensorFormat_t format, cudnnDataType_t type) {
  require_supported(format == CUDNN_TENSOR_NCHW, "the stand-in computes on NCHW alone");
  require_supported(type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_BFLOAT16,
                    "the stand-in computes on float and bfloat16 alone");
  return type == CUDNN_DATA_FLOAT ? Type::kFloat : Type::kBfloat16;
}

Blend read_blend(const void* alpha, const void* beta) {
  require_pointer(alpha, "alpha");
  require_pointer(beta, "beta");
  Blend blend;
  std::memcpy(&blend.alpha, alpha, sizeof blend.alpha);
  std::memcpy(&blend.beta, beta, sizeof blend.beta);
  return blend;
}

}  // namespace standin::libraries

using namespace standin::libraries;

extern "C" {

// --- The library and its handle

size_t cudnnGetVersion() {
  standin::must_fail("cudnnGetVersion");
  const char* text = std::getenv("CONVNET_STANDIN_CUDNN_VERSION");
  return text != nullptr ? std::strtoul(text, nullptr, 10) : CUDNN_VERSION;
}

size_t cudnnGetCudartVersion() {
  standin::must_fail("cudnnGetCudartVersion");
  return CUDART_VERSION;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  standin::must_fail("cudnnGetErrorString");
  switch (CUDNN_STATUS_CATEGORY(static_cast<int>(status))) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR:
      return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
      return "CUDNN_UNKNOWN_STATUS";
  }
}

// Gives the text once, as cuDNN does, cut to fit.
void cudnnGetLastErrorString(char* message, size_t max_size) {
  standin::must_fail("cudnnGetLastErrorString");
  if (message == nullptr || max_size == 0) {
    return;
  }
  const std::size_t length = std::min(max_size - 1, last_error().size());
  std::memcpy(message, last_error().data(), length);
  message[length] = '\0';
  last_error().clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return entry("cudnnCreate", [&] {
    standin::forbid_while_capturing("cudnnCreate");
    create(handle);
  });
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return entry("cudnnDestroy", [&] {
    standin::forbid_while_capturing("cudnnDestroy");
    destroy(handle);
  });
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return entry("cudnnSetStream", [&] { alive(handle, "cudnnSetStream").stream = stream; });
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  return entry("cudnnGetStream", [&] {
    require_pointer(stream, "the result");
    *stream = alive(handle, "cudnnGetStream").stream;
  });
}

// --- Tensors

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  return entry("cudnnCreateTensorDescriptor", [&] { create(tensor); });
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  return entry("cudnnSetTensor4dDescriptor", [&] {
    auto& target = alive(tensor, "cudnnSetTensor4dDescriptor");
    require_known_format(format, type);
    require_dimensions(n, c, h, w);
    target = {true, format, type, n, c, h, w};
  });
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  return entry("cudnnDestroyTensorDescriptor", [&] { destroy(tensor); });
}

// --- Filters

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  return entry("cudnnCreateFilterDescriptor", [&] { create(filter); });
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  return entry("cudnnSetFilter4dDescriptor", [&] {
    auto& target = alive(filter, "cudnnSetFilter4dDescriptor");
    require_known_format(format, type);
    require_dimensions(k, c, h, w);
    target = {true, format, type, k, c, h, w};
  });
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  return entry("cudnnDestroyFilterDescriptor", [&] { destroy(filter); });
}

// --- Convolutions

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  return entry("cudnnCreateConvolutionDescriptor", [&] { create(convolution); });
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  return entry("cudnnDestroyConvolutionDescriptor", [&] { destroy(convolution); });
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute_type) {
  return entry("cudnnSetConvolution2dDescriptor", [&] {
    auto& target = alive(convolution, "cudnnSetConvolution2dDescriptor");
    require_parameter(std::min(pad_h, pad_w) >= 0, "a padding is negative");
    require_parameter(std::min({stride_h, stride_w, dilation_h, dilation_w}) > 0,
                      "a stride or dilation is not positive");
    require_parameter(mode == CUDNN_CONVOLUTION || mode == CUDNN_CROSS_CORRELATION, "no such mode");
    target = {true,       pad_h,      pad_w, stride_h,     stride_w,
              dilation_h, dilation_w, mode,  compute_type, target.math_type};
  });
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t math) {
  return entry("cudnnSetConvolutionMathType", [&] {
    require_parameter(math >= CUDNN_DEFAULT_MATH && math <= CUDNN_FMA_MATH, "no such math type");
    alive(convolution, "cudnnSetConvolutionMathType").math_type = math;
  });
}

cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t* math) {
  return entry("cudnnGetConvolutionMathType", [&] {
    require_pointer(math, "the result");
    *math = alive(convolution, "cudnnGetConvolutionMathType").math_type;
  });
}

cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(const cudnnConvolutionDescriptor_t convolution,
                                                    const cudnnTensorDescriptor_t input,
                                                    const cudnnFilterDescriptor_t filter, int* n, int* c,
                                                    int* h, int* w) {
  constexpr const char* kCall = "cudnnGetConvolution2dForwardOutputDim";
  return entry(kCall, [&] {
    const cudnnConvolutionStruct& conv = described<cudnnConvolutionStruct>(convolution, kCall);
    const cudnnTensorStruct& x = described<cudnnTensorStruct>(input, kCall);
    const cudnnFilterStruct& weights = described<cudnnFilterStruct>(filter, kCall);
    require_parameter(x.c == weights.c, "tensor and filter differ in channels");
    *n = x.n;
    *c = weights.k;
    *h = output_size(x.h, conv.pad_h, (weights.h - 1) * conv.dilation_h + 1, conv.stride_h);
    *w = output_size(x.w, conv.pad_w, (weights.w - 1) * conv.dilation_w + 1, conv.stride_w);
  });
}

// --- Activations and poolings

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* activation) {
  return entry("cudnnCreateActivationDescriptor", [&] { create(activation); });
}

cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t nan, double /*ceiling*/) {
  return entry("cudnnSetActivationDescriptor", [&] {
    auto& target = alive(activation, "cudnnSetActivationDescriptor");
    require_parameter(mode >= CUDNN_ACTIVATION_SIGMOID && mode <= CUDNN_ACTIVATION_SWISH, "no such mode");
    target = {true, mode, nan};
  });
}

cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activation) {
  return entry("cudnnDestroyActivationDescriptor", [&] { destroy(activation); });
}

cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t* pooling) {
  return entry("cudnnCreatePoolingDescriptor", [&] { create(pooling); });
}

cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t pooling, cudnnPoolingMode_t mode,
                                          cudnnNanPropagation_t nan, int window_h, int window_w, int pad_h,
                                          int pad_w, int stride_h, int stride_w) {
  return entry("cudnnSetPooling2dDescriptor", [&] {
    auto& target = alive(pooling, "cudnnSetPooling2dDescriptor");
    require_parameter(mode >= CUDNN_POOLING_MAX && mode <= CUDNN_POOLING_MAX_DETERMINISTIC, "no such mode");
    require_parameter(std::min({window_h, window_w, stride_h, stride_w}) > 0,
                      "a window or stride is not positive");
    require_parameter(pad_h >= 0 && pad_w >= 0 && pad_h < window_h && pad_w < window_w,
                      "a padding is negative, or not smaller than the window");
    target = {true, mode, nan, window_h, window_w, pad_h, pad_w, stride_h, stride_w};
  });
}

cudnnStatus_t cudnnGetPooling2dForwardOutputDim(const cudnnPoolingDescriptor_t pooling,
                                                const cudnnTensorDescriptor_t input, int* n, int* c, int* h,
                                                int* w) {
  constexpr const char* kCall = "cudnnGetPooling2dForwardOutputDim";
  return entry(kCall, [&] {
    const cudnnPoolingStruct& pool = described<cudnnPoolingStruct>(pooling, kCall);
    const cudnnTensorStruct& x = described<cudnnTensorStruct>(input, kCall);
    *n = x.n;
    *c = x.c;
    *h = output_size(x.h, pool.pad_h, pool.window_h, pool.stride_h);
    *w = output_size(x.w, pool.pad_w, pool.window_w, pool.stride_w);
  });
}

cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t pooling) {
  return entry("cudnnDestroyPoolingDescriptor", [&] { destroy(pooling); });
}

}  // extern "C"
