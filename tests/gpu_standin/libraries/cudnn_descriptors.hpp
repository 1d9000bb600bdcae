#pragma once

#include <cudnn.h>

#include <cstddef>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "libraries/values.hpp"
#include "standin.hpp"

// cuDNN's opaque types, which its header declares, and what all of its entry points do first.

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

struct cudnnTensorStruct {
  bool is_set = false;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int n = 0;
  int c = 0;
  int h = 0;
  int w = 0;

  std::size_t count() const { return static_cast<std::size_t>(n) * static_cast<std::size_t>(c) * pixels(); }
  std::size_t pixels() const { return static_cast<std::size_t>(h) * static_cast<std::size_t>(w); }
  bool has_shape_of(const cudnnTensorStruct& other) const {
    return n == other.n && c == other.c && h == other.h && w == other.w;
  }
  bool has_shape(int want_n, int want_c, int want_h, int want_w) const {
    return n == want_n && c == want_c && h == want_h && w == want_w;
  }
};

struct cudnnFilterStruct {
  bool is_set = false;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int k = 0;
  int c = 0;
  int h = 0;
  int w = 0;

  std::size_t count() const {
    return static_cast<std::size_t>(k) * static_cast<std::size_t>(c) * static_cast<std::size_t>(h) *
           static_cast<std::size_t>(w);
  }
};

struct cudnnConvolutionStruct {
  bool is_set = false;
  int pad_h = 0;
  int pad_w = 0;
  int stride_h = 1;
  int stride_w = 1;
  int dilation_h = 1;
  int dilation_w = 1;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  cudnnMathType_t math_type = CUDNN_DEFAULT_MATH;
};

struct cudnnActivationStruct {
  bool is_set = false;
  cudnnActivationMode_t mode = CUDNN_ACTIVATION_RELU;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
};

struct cudnnPoolingStruct {
  bool is_set = false;
  cudnnPoolingMode_t mode = CUDNN_POOLING_MAX;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
  int window_h = 1;
  int window_w = 1;
  int pad_h = 0;
  int pad_w = 0;
  int stride_h = 1;
  int stride_w = 1;
};

namespace standin::libraries {

// What an entry point throws inside to return a status other than success.
struct Refused : std::exception {
  Refused(cudnnStatus_t why, std::string what) : status(why), text(std::move(what)) {}
  const char* what() const noexcept override { return text.c_str(); }

  cudnnStatus_t status;
  std::string text;
};

inline void require(bool is_met, cudnnStatus_t status, const std::string& text) {
  if (!is_met) {
    throw Refused(status, text);
  }
}

inline void require_parameter(bool is_met, const std::string& text) {
  require(is_met, CUDNN_STATUS_BAD_PARAM, text);
}

inline void require_supported(bool is_met, const std::string& text) {
  require(is_met, CUDNN_STATUS_NOT_SUPPORTED, text);
}

// Keeps the text of a failure for cudnnGetLastErrorString, and returns the status.
cudnnStatus_t remember(cudnnStatus_t status, const std::string& text);

// An entry point of cuDNN: fails where a test says so, else runs `body`.
template <class Body>
cudnnStatus_t entry(const char* call, const Body& body) {
  if (must_fail(call)) {
    return remember(CUDNN_STATUS_INTERNAL_ERROR, std::string(call) + ": made to fail");
  }
  try {
    body();
  } catch (const Refused& refused) {
    return remember(refused.status, std::string(call) + ": " + refused.text);
  }
  return CUDNN_STATUS_SUCCESS;
}

// The names of the opaque types, as object_made() counts them.
template <class Object>
inline constexpr const char* kKind = nullptr;
template <>
inline constexpr const char* kKind<cudnnContext> = "cudnnHandle_t";
template <>
inline constexpr const char* kKind<cudnnTensorStruct> = "cudnnTensorDescriptor_t";
template <>
inline constexpr const char* kKind<cudnnFilterStruct> = "cudnnFilterDescriptor_t";
template <>
inline constexpr const char* kKind<cudnnConvolutionStruct> = "cudnnConvolutionDescriptor_t";
template <>
inline constexpr const char* kKind<cudnnActivationStruct> = "cudnnActivationDescriptor_t";
template <>
inline constexpr const char* kKind<cudnnPoolingStruct> = "cudnnPoolingDescriptor_t";

// The object behind a handle or descriptor: a violation unless it lives.
template <class Object>
Object& alive(Object* object, const char* call) {
  constexpr const char* kName = kKind<std::remove_const_t<Object>>;
  require_parameter(object != nullptr, std::string(kName) + " is null");
  require_object(kName, object, call);
  return *object;
}

// The same for a descriptor that must have been set.
template <class Descriptor>
const Descriptor& described(const Descriptor* descriptor, const char* call) {
  const Descriptor& result = alive(descriptor, call);
  require_parameter(result.is_set, std::string(kKind<Descriptor>) + " was never set");
  return result;
}

// A tensor's elements, which must be NCHW and float or bfloat16.
Type element_type(cudnnTensorFormat_t format, cudnnDataType_t type);
inline Type element_type(const cudnnTensorStruct& tensor) {
  return element_type(tensor.format, tensor.type);
}

inline std::size_t bytes_of(const cudnnTensorStruct& tensor) {
  return tensor.count() * size_of(element_type(tensor));
}

// Host scalars, read at the call.
Blend read_blend(const void* alpha, const void* beta);

inline void require_pointer(const void* pointer, const char* name) {
  require_parameter(pointer != nullptr, std::string(name) + " is null");
}

}  // namespace standin::libraries
