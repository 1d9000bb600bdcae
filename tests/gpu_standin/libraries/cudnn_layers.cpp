#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "libraries/arguments.hpp"
#include "libraries/cudnn_descriptors.hpp"

// cuDNN's layers without weights: ReLU, max-pooling, softmax, and the addition of a bias.

namespace standin::libraries {
namespace {

void require_same(const cudnnTensorStruct& first, const cudnnTensorStruct& second) {
  element_type(second);
  require_parameter(first.has_shape_of(second) && first.type == second.type, "the descriptors differ");
}

void require_relu(const cudnnActivationStruct& activation) {
  require_supported(activation.mode == CUDNN_ACTIVATION_RELU,
                    "the stand-in has no other activation than RELU");
}

float relu(float x, cudnnNanPropagation_t nan) {
  if (std::isnan(x)) {
    return nan == CUDNN_PROPAGATE_NAN ? x : 0.0F;
  }
  return std::max(x, 0.0F);
}

// Where pooling's windows lie.
struct Pooling {
  cudnnPoolingStruct pool;
  cudnnTensorStruct x;
  cudnnTensorStruct y;
  Type type = Type::kFloat;

  // The places in x of the values of the window behind place `out` of y, in row-major order.
  void window(std::size_t out, std::vector<std::size_t>& places) const {
    places.clear();
    const auto column = static_cast<int>(out % static_cast<std::size_t>(y.w));
    const auto row = static_cast<int>(out / static_cast<std::size_t>(y.w) % static_cast<std::size_t>(y.h));
    const std::size_t plane = out / y.pixels();
    const int top = row * pool.stride_h - pool.pad_h;
    const int left = column * pool.stride_w - pool.pad_w;
    for (int i = std::max(top, 0); i < std::min(top + pool.window_h, x.h); ++i) {
      for (int j = std::max(left, 0); j < std::min(left + pool.window_w, x.w); ++j) {
        places.push_back(plane * x.pixels() + static_cast<std::size_t>(i * x.w + j));
      }
    }
  }
};

Pooling agreed_pooling(const char* call, cudnnPoolingDescriptor_t pooling, cudnnTensorDescriptor_t x,
                       cudnnTensorDescriptor_t y) {
  Pooling result{described<cudnnPoolingStruct>(pooling, call), described<cudnnTensorStruct>(x, call),
                 described<cudnnTensorStruct>(y, call)};
  const cudnnPoolingStruct& pool = result.pool;
  require_supported(pool.mode == CUDNN_POOLING_MAX || pool.mode == CUDNN_POOLING_MAX_DETERMINISTIC,
                    "the stand-in has no other pooling than that of maxima");
  result.type = element_type(result.x);
  element_type(result.y);
  require_parameter(result.x.type == result.y.type, "the data types differ");
  const int room_h = result.x.h + 2 * pool.pad_h - pool.window_h;
  const int room_w = result.x.w + 2 * pool.pad_w - pool.window_w;
  require_parameter(
      room_h >= 0 && room_w >= 0 &&
          result.y.has_shape(result.x.n, result.x.c, room_h / pool.stride_h + 1, room_w / pool.stride_w + 1),
      "the output's dimensions are not those that the pooling gives");
  return result;
}

// The greatest value of a window; NaN, if there is one and it is to propagate.
float maximum(const std::vector<float>& x, const std::vector<std::size_t>& window,
              cudnnNanPropagation_t nan) {
  float best = -std::numeric_limits<float>::infinity();
  for (const std::size_t place : window) {
    if (std::isnan(x[place])) {
      if (nan == CUDNN_PROPAGATE_NAN) {
        return x[place];
      }
    } else {
      best = std::max(best, x[place]);
    }
  }
  return best;
}

bool is_same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// The gradients of the windows go to one of their maxima each: the first, or with a turn that is not 0 one
// that depends on it, which is what CUDNN_POOLING_MAX leaves open.
std::vector<float> pooling_gradient(const Pooling& pooling, const std::vector<float>& x,
                                    const std::vector<float>& dy, std::size_t turn) {
  std::vector<float> dx(x.size());
  std::vector<std::size_t> places;
  std::vector<std::size_t> winners;
  for (std::size_t out = 0; out < dy.size(); ++out) {
    pooling.window(out, places);
    const float best = maximum(x, places, pooling.pool.nan);
    winners.clear();
    std::copy_if(places.begin(), places.end(), std::back_inserter(winners),
                 [&](std::size_t place) { return is_same(x[place], best); });
    if (!winners.empty()) {
      dx[winners[turn == 0 ? 0 : (turn + out) % winners.size()]] += dy[out];
    }
  }
  return dx;
}

// Row by row; with the maximum taken off, so that nothing overflows.
std::vector<float> softmax(const std::vector<float>& x, std::size_t classes, bool is_log) {
  std::vector<float> y(x.size());
  for (std::size_t first = 0; first < x.size(); first += classes) {
    const auto* row = &x[first];
    const float greatest = *std::max_element(row, row + classes);
    double sum = 0.0;
    for (std::size_t c = 0; c < classes; ++c) {
      sum += std::exp(static_cast<double>(row[c] - greatest));
    }
    for (std::size_t c = 0; c < classes; ++c) {
      const auto distance = static_cast<double>(row[c] - greatest);
      y[first + c] = static_cast<float>(is_log ? distance - std::log(sum) : std::exp(distance) / sum);
    }
  }
  return y;
}

// Where cudnnAddTensor finds the addend of place `i` of `target`: dimensions of 1 are repeated.
std::size_t repeated_place(const cudnnTensorStruct& addend, const cudnnTensorStruct& target, std::size_t i) {
  const auto step = [](int size, int target_size, std::size_t& rest) {
    const auto index = rest % static_cast<std::size_t>(target_size);
    rest /= static_cast<std::size_t>(target_size);
    return size == 1 ? 0 : index;
  };
  std::size_t rest = i;
  const std::size_t w = step(addend.w, target.w, rest);
  const std::size_t h = step(addend.h, target.h, rest);
  const std::size_t c = step(addend.c, target.c, rest);
  const std::size_t n = step(addend.n, target.n, rest);
  return ((n * static_cast<std::size_t>(addend.c) + c) * static_cast<std::size_t>(addend.h) + h) *
             static_cast<std::size_t>(addend.w) +
         w;
}

}  // namespace
}  // namespace standin::libraries

using namespace standin::libraries;

extern "C" {

cudnnStatus_t cudnnActivationForward(cudnnHandle_t handle, cudnnActivationDescriptor_t activation,
                                     const void* alpha, const cudnnTensorDescriptor_t x_descriptor,
                                     const void* x, const void* beta,
                                     const cudnnTensorDescriptor_t y_descriptor, void* y) {
  constexpr const char* kCall = "cudnnActivationForward";
  return entry(kCall, [&] {
    const cudaStream_t stream = alive(handle, kCall).stream;
    const cudnnActivationStruct chosen = described<cudnnActivationStruct>(activation, kCall);
    const cudnnTensorStruct tensor = described<cudnnTensorStruct>(x_descriptor, kCall);
    const Type type = element_type(tensor);
    require_relu(chosen);
    require_same(tensor, described<cudnnTensorStruct>(y_descriptor, kCall));
    const Blend blend = read_blend(alpha, beta);
    require_parameter(x != nullptr && y != nullptr, "a tensor is null");
    Arguments arguments(kCall);
    arguments.reads("x", x, bytes_of(tensor), size_of(type));
    arguments.writes("y", y, bytes_of(tensor), size_of(type), "x");
    arguments.enqueue(stream, [=] {
      std::vector<float> values = load(x, type, tensor.count());
      for (float& value : values) {
        value = relu(value, chosen.nan);
      }
      store(y, type, values, blend);
    });
  });
}

cudnnStatus_t cudnnActivationBackward(cudnnHandle_t handle, cudnnActivationDescriptor_t activation,
                                      const void* alpha, const cudnnTensorDescriptor_t y_descriptor,
                                      const void* y, const cudnnTensorDescriptor_t dy_descriptor,
                                      const void* dy, const cudnnTensorDescriptor_t x_descriptor,
                                      const void* x, const void* beta,
                                      const cudnnTensorDescriptor_t dx_descriptor, void* dx) {
  constexpr const char* kCall = "cudnnActivationBackward";
  return entry(kCall, [&] {
    const cudaStream_t stream = alive(handle, kCall).stream;
    const cudnnActivationStruct chosen = described<cudnnActivationStruct>(activation, kCall);
    const cudnnTensorStruct tensor = described<cudnnTensorStruct>(x_descriptor, kCall);
    const Type type = element_type(tensor);
    require_relu(chosen);
    require_same(tensor, described<cudnnTensorStruct>(y_descriptor, kCall));
    require_same(tensor, described<cudnnTensorStruct>(dy_descriptor, kCall));
    require_same(tensor, described<cudnnTensorStruct>(dx_descriptor, kCall));
    const Blend blend = read_blend(alpha, beta);
    require_parameter(y != nullptr && dy != nullptr && x != nullptr && dx != nullptr, "a tensor is null");
    Arguments arguments(kCall);
    arguments.reads("y", y, bytes_of(tensor), size_of(type));
    arguments.reads("dy", dy, bytes_of(tensor), size_of(type));
    arguments.reads("x", x, bytes_of(tensor), size_of(type));
    arguments.writes("dx", dx, bytes_of(tensor), size_of(type), "dy");
    arguments.enqueue(stream, [=] {
      const std::vector<float> inputs = load(x, type, tensor.count());
      std::vector<float> gradient = load(dy, type, tensor.count());
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const bool is_nan = std::isnan(inputs[i]) && chosen.nan == CUDNN_PROPAGATE_NAN;
        gradient[i] = is_nan ? inputs[i] : inputs[i] > 0.0F ? gradient[i] : 0.0F;
      }
      store(dx, type, gradient, blend);
    });
  });
}

cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t pooling,
                                  const void* alpha, const cudnnTensorDescriptor_t x_descriptor,
                                  const void* x, const void* beta, const cudnnTensorDescriptor_t y_descriptor,
                                  void* y) {
  constexpr const char* kCall = "cudnnPoolingForward";
  return entry(kCall, [&] {
    const cudaStream_t stream = alive(handle, kCall).stream;
    const Pooling call = agreed_pooling(kCall, pooling, x_descriptor, y_descriptor);
    const Blend blend = read_blend(alpha, beta);
    require_parameter(x != nullptr && y != nullptr, "a tensor is null");
    Arguments arguments(kCall);
    arguments.reads("x", x, bytes_of(call.x), size_of(call.type));
    arguments.writes("y", y, bytes_of(call.y), size_of(call.type));
    arguments.enqueue(stream, [=] {
      const std::vector<float> values = load(x, call.type, call.x.count());
      std::vector<float> maxima(call.y.count());
      std::vector<std::size_t> places;
      for (std::size_t out = 0; out < maxima.size(); ++out) {
        call.window(out, places);
        maxima[out] = maximum(values, places, call.pool.nan);
      }
      store(y, call.type, maxima, blend);
    });
  });
}

cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t pooling,
                                   const void* alpha, const cudnnTensorDescriptor_t y_descriptor,
                                   const void* y, const cudnnTensorDescriptor_t dy_descriptor, const void* dy,
                                   const cudnnTensorDescriptor_t x_descriptor, const void* x,
                                   const void* beta, const cudnnTensorDescriptor_t dx_descriptor, void* dx) {
  constexpr const char* kCall = "cudnnPoolingBackward";
  return entry(kCall, [&] {
    const cudaStream_t stream = alive(handle, kCall).stream;
    const Pooling call = agreed_pooling(kCall, pooling, x_descriptor, y_descriptor);
    require_same(call.y, described<cudnnTensorStruct>(dy_descriptor, kCall));
    require_same(call.x, described<cudnnTensorStruct>(dx_descriptor, kCall));
    const Blend blend = read_blend(alpha, beta);
    require_parameter(y != nullptr && dy != nullptr && x != nullptr && dx != nullptr, "a tensor is null");
    Arguments arguments(kCall);
    arguments.reads("y", y, bytes_of(call.y), size_of(call.type));
    arguments.reads("dy", dy, bytes_of(call.y), size_of(call.type));
    arguments.reads("x", x, bytes_of(call.x), size_of(call.type));
    arguments.writes("dx", dx, bytes_of(call.x), size_of(call.type));
    arguments.enqueue(stream, [=] {
      static std::size_t runs = 0;
      const std::size_t turn = call.pool.mode == CUDNN_POOLING_MAX_DETERMINISTIC ? 0 : ++runs;
      store(dx, call.type,
            pooling_gradient(call, load(x, call.type, call.x.count()), load(dy, call.type, call.y.count()),
                             turn),
            blend);
    });
  });
}

cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm,
                                  cudnnSoftmaxMode_t mode, const void* alpha,
                                  const cudnnTensorDescriptor_t x_descriptor, const void* x, const void* beta,
                                  const cudnnTensorDescriptor_t y_descriptor, void* y) {
  constexpr const char* kCall = "cudnnSoftmaxForward";
  return entry(kCall, [&] {
    const cudaStream_t stream = alive(handle, kCall).stream;
    const cudnnTensorStruct tensor = described<cudnnTensorStruct>(x_descriptor, kCall);
    const Type type = element_type(tensor);
    require_same(tensor, described<cudnnTensorStruct>(y_descriptor, kCall));
    require_parameter(mode == CUDNN_SOFTMAX_MODE_INSTANCE || mode == CUDNN_SOFTMAX_MODE_CHANNEL,
                      "no such mode");
    require_supported(algorithm == CUDNN_SOFTMAX_ACCURATE || algorithm == CUDNN_SOFTMAX_LOG,
                      "the stand-in has the accurate and the logarithmic softmax alone");
    require_supported(tensor.h == 1 && tensor.w == 1, "the stand-in takes N x C x 1 x 1 alone");
    const Blend blend = read_blend(alpha, beta);
    require_parameter(x != nullptr && y != nullptr, "a tensor is null");
    Arguments arguments(kCall);
    arguments.reads("x", x, bytes_of(tensor), size_of(type));
    arguments.writes("y", y, bytes_of(tensor), size_of(type), "x");
    arguments.enqueue(stream, [=] {
      store(y, type,
            softmax(load(x, type, tensor.count()), static_cast<std::size_t>(tensor.c),
                    algorithm == CUDNN_SOFTMAX_LOG),
            blend);
    });
  });
}

cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void* alpha,
                             const cudnnTensorDescriptor_t a_descriptor, const void* a, const void* beta,
                             const cudnnTensorDescriptor_t c_descriptor, void* c) {
  constexpr const char* kCall = "cudnnAddTensor";
  return entry(kCall, [&] {
    const cudaStream_t stream = alive(handle, kCall).stream;
    const cudnnTensorStruct addend = described<cudnnTensorStruct>(a_descriptor, kCall);
    const cudnnTensorStruct target = described<cudnnTensorStruct>(c_descriptor, kCall);
    const Type type = element_type(target);
    element_type(addend);
    const auto fits = [](int size, int target_size) { return size == 1 || size == target_size; };
    require_parameter(addend.type == target.type, "the data types differ");
    require_parameter(fits(addend.n, target.n) && fits(addend.c, target.c) && fits(addend.h, target.h) &&
                          fits(addend.w, target.w),
                      "a dimension of A is neither 1 nor that of C");
    const Blend blend = read_blend(alpha, beta);
    require_parameter(a != nullptr && c != nullptr, "a tensor is null");
    Arguments arguments(kCall);
    arguments.reads("A", a, bytes_of(addend), size_of(type));
    arguments.writes("C", c, bytes_of(target), size_of(type));
    arguments.enqueue(stream, [=] {
      const std::vector<float> values = load(a, type, addend.count());
      std::vector<float> repeated(target.count());
      for (std::size_t i = 0; i < repeated.size(); ++i) {
        repeated[i] = values[repeated_place(addend, target, i)];
      }
      store(c, type, repeated, blend);
    });
  });
}

}  // extern "C"
