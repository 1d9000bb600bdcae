#include "libraries/cudnn_convolution.hpp"

#include <utility>

#include "libraries/arguments.hpp"

namespace standin::libraries {
namespace {

constexpr std::size_t kWorkspaceAlignment = 16;

std::size_t unsigned_of(int value) {
  return static_cast<std::size_t>(value);
}

ConvolutionShape shape_of(const cudnnTensorStruct& x, const cudnnFilterStruct& w,
                          const cudnnConvolutionStruct& convolution, const cudnnTensorStruct& y) {
  return {unsigned_of(x.n),
          unsigned_of(x.c),
          unsigned_of(x.h),
          unsigned_of(x.w),
          unsigned_of(w.k),
          unsigned_of(y.h),
          unsigned_of(y.w),
          unsigned_of(w.h),
          unsigned_of(w.w),
          unsigned_of(convolution.pad_h),
          unsigned_of(convolution.pad_w),
          unsigned_of(convolution.stride_h),
          unsigned_of(convolution.stride_w),
          unsigned_of(convolution.dilation_h),
          unsigned_of(convolution.dilation_w)};
}

void require_output_shape(const cudnnTensorStruct& x, const cudnnFilterStruct& w,
                          const cudnnConvolutionStruct& convolution, const cudnnTensorStruct& y) {
  const int extent_h = (w.h - 1) * convolution.dilation_h + 1;
  const int extent_w = (w.w - 1) * convolution.dilation_w + 1;
  require_supported(convolution.pad_h < extent_h && convolution.pad_w < extent_w,
                    "the padding is not smaller than the filter");
  const int room_h = x.h + 2 * convolution.pad_h - extent_h;
  const int room_w = x.w + 2 * convolution.pad_w - extent_w;
  require_parameter(room_h >= 0 && room_w >= 0, "the filter is larger than the padded image");
  require_parameter(
      y.has_shape(x.n, w.k, room_h / convolution.stride_h + 1, room_w / convolution.stride_w + 1),
      "the output's dimensions are not those that the convolution gives");
}

// The workspace must be what the algorithm wants, even where the stand-in does without: it is taken as
// written.
void add_workspace(Arguments& arguments, const Algorithm& algorithm, void* workspace, std::size_t bytes) {
  if (algorithm.workspace == 0) {
    return;
  }
  require_parameter(workspace != nullptr && bytes >= algorithm.workspace,
                    "the workspace has " + std::to_string(bytes) + " bytes, expected " +
                        std::to_string(algorithm.workspace));
  arguments.writes("workSpace", workspace, algorithm.workspace, kWorkspaceAlignment);
}

// What the multipliers see of a tensor in memory.
std::vector<float> operands(const void* first, Type type, std::size_t count, bool is_tf32) {
  std::vector<float> values = load(first, type, count);
  if (is_tf32) {
    round_to_tf32(values);
  }
  return values;
}

// The atomic additions of a nondeterministic algorithm: each time it runs, another order.
Turn next_turn(const Algorithm& algorithm) {
  static std::size_t runs = 0;
  if (algorithm.is_deterministic) {
    return std::nullopt;
  }
  return ++runs;
}

}  // namespace

ConvolutionCall agreed(const char* call, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                       cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y) {
  ConvolutionCall result;
  result.x = &described<cudnnTensorStruct>(x, call);
  result.w = &described<cudnnFilterStruct>(w, call);
  result.convolution = &described<cudnnConvolutionStruct>(convolution, call);
  result.y = &described<cudnnTensorStruct>(y, call);
  require_parameter(x->type == w->type && x->type == y->type, "the data types differ");
  require_parameter(x->c == w->c, "tensor and filter differ in channels");
  result.type = element_type(*x);
  element_type(w->format, w->type);
  element_type(*y);
  require_supported(convolution->mode == CUDNN_CROSS_CORRELATION, "the stand-in has no CUDNN_CONVOLUTION");
  require_supported(convolution->compute_type == CUDNN_DATA_FLOAT, "the compute type is not float");
  require_output_shape(*x, *w, *convolution, *y);
  result.shape = shape_of(*x, *w, *convolution, *y);
  return result;
}

}  // namespace standin::libraries

using namespace standin::libraries;

extern "C" {

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t x_descriptor, const void* x,
                                      const cudnnFilterDescriptor_t w_descriptor, const void* w,
                                      const cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      size_t workspace_bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y_descriptor, void* y) {
  constexpr const char* kCall = "cudnnConvolutionForward";
  return entry(kCall, [&] {
    const cudaStream_t stream = alive(handle, kCall).stream;
    const ConvolutionCall call = agreed(kCall, x_descriptor, w_descriptor, convolution, y_descriptor);
    const Algorithm choice = chosen(Operation::kForward, call, algorithm);
    const Blend blend = read_blend(alpha, beta);
    require_parameter(x != nullptr && w != nullptr && y != nullptr, "a tensor is null");
    const Type type = call.type;
    Arguments arguments(kCall);
    arguments.reads("x", x, bytes_of(*call.x), size_of(type));
    arguments.reads("w", w, call.filter_bytes(), size_of(type));
    arguments.writes("y", y, bytes_of(*call.y), size_of(type));
    add_workspace(arguments, choice, workspace, workspace_bytes);
    arguments.enqueue(stream, [=, shape = call.shape, x_count = call.x->count(), w_count = call.w->count(),
                               is_tf32 = call.may_use_tf32()] {
      store(y, type,
            convolution_forward(shape, operands(x, type, x_count, is_tf32),
                                operands(w, type, w_count, is_tf32)),
            blend);
    });
  });
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_descriptor, const void* w,
                                           const cudnnTensorDescriptor_t dy_descriptor, const void* dy,
                                           const cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t workspace_bytes, const void* beta,
                                           const cudnnTensorDescriptor_t dx_descriptor, void* dx) {
  constexpr const char* kCall = "cudnnConvolutionBackwardData";
  return entry(kCall, [&] {
    const cudaStream_t stream = alive(handle, kCall).stream;
    const ConvolutionCall call = agreed(kCall, dx_descriptor, w_descriptor, convolution, dy_descriptor);
    const Algorithm choice = chosen(Operation::kBackwardData, call, algorithm);
    const Blend blend = read_blend(alpha, beta);
    require_parameter(w != nullptr && dy != nullptr && dx != nullptr, "a tensor is null");
    const Type type = call.type;
    Arguments arguments(kCall);
    arguments.reads("w", w, call.filter_bytes(), size_of(type));
    arguments.reads("dy", dy, bytes_of(*call.y), size_of(type));
    arguments.writes("dx", dx, bytes_of(*call.x), size_of(type));
    add_workspace(arguments, choice, workspace, workspace_bytes);
    arguments.enqueue(stream, [=, shape = call.shape, dy_count = call.y->count(), w_count = call.w->count(),
                               is_tf32 = call.may_use_tf32()] {
      store(dx, type,
            convolution_backward_data(shape, operands(w, type, w_count, is_tf32),
                                      operands(dy, type, dy_count, is_tf32), next_turn(choice)),
            blend);
    });
  });
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_descriptor, const void* x,
                                             const cudnnTensorDescriptor_t dy_descriptor, const void* dy,
                                             const cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             size_t workspace_bytes, const void* beta,
                                             const cudnnFilterDescriptor_t dw_descriptor, void* dw) {
  constexpr const char* kCall = "cudnnConvolutionBackwardFilter";
  return entry(kCall, [&] {
    const cudaStream_t stream = alive(handle, kCall).stream;
    const ConvolutionCall call = agreed(kCall, x_descriptor, dw_descriptor, convolution, dy_descriptor);
    const Algorithm choice = chosen(Operation::kBackwardFilter, call, algorithm);
    const Blend blend = read_blend(alpha, beta);
    require_parameter(x != nullptr && dy != nullptr && dw != nullptr, "a tensor is null");
    const Type type = call.type;
    Arguments arguments(kCall);
    arguments.reads("x", x, bytes_of(*call.x), size_of(type));
    arguments.reads("dy", dy, bytes_of(*call.y), size_of(type));
    arguments.writes("dw", dw, call.filter_bytes(), size_of(type));
    add_workspace(arguments, choice, workspace, workspace_bytes);
    arguments.enqueue(stream, [=, shape = call.shape, x_count = call.x->count(), dy_count = call.y->count(),
                               is_tf32 = call.may_use_tf32()] {
      store(dw, type,
            convolution_backward_filter(shape, operands(x, type, x_count, is_tf32),
                                        operands(dy, type, dy_count, is_tf32), next_turn(choice)),
            blend);
    });
  });
}

cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void* alpha,
                                           const cudnnTensorDescriptor_t dy_descriptor, const void* dy,
                                           const void* beta, const cudnnTensorDescriptor_t db_descriptor,
                                           void* db) {
  constexpr const char* kCall = "cudnnConvolutionBackwardBias";
  return entry(kCall, [&] {
    const cudaStream_t stream = alive(handle, kCall).stream;
    const cudnnTensorStruct gradient = described<cudnnTensorStruct>(dy_descriptor, kCall);
    const cudnnTensorStruct& bias = described<cudnnTensorStruct>(db_descriptor, kCall);
    const Type type = element_type(gradient);
    require_parameter(bias.has_shape(1, gradient.c, 1, 1), "the bias is not 1 x C x 1 x 1");
    require_parameter(bias.type == gradient.type && bias.format == gradient.format,
                      "bias and gradient differ in data type or format");
    const Blend blend = read_blend(alpha, beta);
    require_parameter(dy != nullptr && db != nullptr, "a tensor is null");
    Arguments arguments(kCall);
    arguments.reads("dy", dy, bytes_of(gradient), size_of(type));
    arguments.writes("db", db, bytes_of(bias), size_of(type));
    arguments.enqueue(stream, [=] {
      const std::vector<float> values = load(dy, type, gradient.count());
      std::vector<double> sums(unsigned_of(gradient.c));
      for (std::size_t i = 0; i < values.size(); ++i) {
        sums[i / gradient.pixels() % sums.size()] += static_cast<double>(values[i]);
      }
      store(db, type, std::vector<float>(sums.begin(), sums.end()), blend);
    });
  });
}

}  // extern "C"
