#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "libraries/arguments.hpp"
#include "libraries/cudnn_descriptors.hpp"

// cuDNN's batch norm over N, H and W, for each channel.

namespace standin::libraries {
namespace {

// What all three calls are given: activations of one shape, and descriptors for them and for the parameters.
struct NormCall {
  cudnnTensorStruct x;
  Type type = Type::kFloat;
  std::size_t channels = 0;
  std::size_t pixels = 0;
  double epsilon = 0.0;
  std::size_t parameter_bytes = 0;

  std::size_t count() const { return x.count(); }
  std::size_t channel_of(std::size_t place) const { return place / pixels % channels; }
  double values_a_channel() const { return static_cast<double>(count() / channels); }
};

NormCall agreed_norm(const char* call, cudnnBatchNormMode_t mode, cudnnTensorDescriptor_t x,
                     cudnnTensorDescriptor_t y, cudnnTensorDescriptor_t parameters, double epsilon) {
  const cudnnTensorStruct& in = described<cudnnTensorStruct>(x, call);
  const cudnnTensorStruct& out = described<cudnnTensorStruct>(y, call);
  const cudnnTensorStruct& derived = described<cudnnTensorStruct>(parameters, call);
  require_supported(mode == CUDNN_BATCHNORM_SPATIAL || mode == CUDNN_BATCHNORM_SPATIAL_PERSISTENT,
                    "the stand-in has no other mode than the spatial ones");
  const Type type = element_type(in);
  element_type(out);
  require_parameter(in.has_shape_of(out) && in.type == out.type, "the activations' descriptors differ");
  require_parameter(derived.has_shape(1, in.c, 1, 1), "the parameters are not 1 x C x 1 x 1");
  require_parameter(derived.type == CUDNN_DATA_FLOAT, "the parameters are not float");
  require_parameter(epsilon >= CUDNN_BN_MIN_EPSILON, "epsilon is less than CUDNN_BN_MIN_EPSILON");
  const auto channels = static_cast<std::size_t>(in.c);
  return {in, type, channels, in.pixels(), epsilon, channels * sizeof(float)};
}

struct Statistics {
  std::vector<double> mean;
  std::vector<double> variance;  // biased
};

Statistics statistics_of(const NormCall& call, const std::vector<float>& x) {
  Statistics result{std::vector<double>(call.channels), std::vector<double>(call.channels)};
  for (std::size_t i = 0; i < x.size(); ++i) {
    result.mean[call.channel_of(i)] += static_cast<double>(x[i]);
  }
  for (double& mean : result.mean) {
    mean /= call.values_a_channel();
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = call.channel_of(i);
    const double distance = static_cast<double>(x[i]) - result.mean[c];
    result.variance[c] += distance * distance;
  }
  for (double& variance : result.variance) {
    variance /= call.values_a_channel();
  }
  return result;
}

std::vector<float> inverse_deviations(const NormCall& call, const std::vector<double>& variance) {
  std::vector<float> result;
  for (const double value : variance) {
    result.push_back(static_cast<float>(1.0 / std::sqrt(value + call.epsilon)));
  }
  return result;
}

std::vector<float> normalised(const NormCall& call, const std::vector<float>& x,
                              const std::vector<float>& mean, const std::vector<float>& inverse,
                              const float* scale, const float* bias) {
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = call.channel_of(i);
    y[i] = (x[i] - mean[c]) * inverse[c] * scale[c] + bias[c];
  }
  return y;
}

// One float a channel: memory that a call may leave out (null) is passed over.
void reads_parameter(Arguments& arguments, const NormCall& call, const char* name, const void* first) {
  if (first != nullptr) {
    arguments.reads(name, first, call.parameter_bytes, sizeof(float));
  }
}

void writes_parameter(Arguments& arguments, const NormCall& call, const char* name, void* first) {
  if (first != nullptr) {
    arguments.writes(name, first, call.parameter_bytes, sizeof(float));
  }
}

std::vector<float> to_floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

// The running statistics take a step to those of the batch, the variance to the unbiased one. Of one value
// alone there is none, and the biased is taken.
struct RunningStatistics {
  float* mean = nullptr;
  float* variance = nullptr;
  double factor = 0.0;

  void step(const NormCall& call, const Statistics& batch) const {
    const double n = call.values_a_channel();
    const double unbiased = n > 1.0 ? n / (n - 1.0) : 1.0;
    for (std::size_t c = 0; c < call.channels; ++c) {
      mean[c] = static_cast<float>((1.0 - factor) * static_cast<double>(mean[c]) + factor * batch.mean[c]);
      variance[c] = static_cast<float>((1.0 - factor) * static_cast<double>(variance[c]) +
                                       factor * unbiased * batch.variance[c]);
    }
  }
};

void require_both_or_none(const void* first, const void* second, const char* what) {
  require_parameter((first == nullptr) == (second == nullptr), std::string("only one of the ") + what);
}

struct Moments {
  std::vector<float> mean;
  std::vector<float> inverse;  // of the deviation
};

// What the forward pass saved, or if it saved nothing the same computed once more.
Moments saved_or_anew(const NormCall& call, const std::vector<float>& x, const void* saved_mean,
                      const void* saved_inverse) {
  if (saved_mean != nullptr) {
    return {load(saved_mean, Type::kFloat, call.channels), load(saved_inverse, Type::kFloat, call.channels)};
  }
  const Statistics batch = statistics_of(call, x);
  return {to_floats(batch.mean), inverse_deviations(call, batch.variance)};
}

struct NormGradients {
  std::vector<double> scale;
  std::vector<double> bias;
};

NormGradients parameter_gradients(const NormCall& call, const std::vector<float>& x,
                                  const std::vector<float>& dy, const std::vector<float>& mean,
                                  const std::vector<float>& inverse) {
  NormGradients result{std::vector<double>(call.channels), std::vector<double>(call.channels)};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = call.channel_of(i);
    result.bias[c] += static_cast<double>(dy[i]);
    result.scale[c] += static_cast<double>(dy[i] * ((x[i] - mean[c]) * inverse[c]));
  }
  return result;
}

// Ioffe and Szegedy's formula, "Batch Normalization" (2015), section 3.
std::vector<float> data_gradient(const NormCall& call, const std::vector<float>& x,
                                 const std::vector<float>& dy, const std::vector<float>& mean,
                                 const std::vector<float>& inverse, const float* scale,
                                 const NormGradients& gradients) {
  const double n = call.values_a_channel();
  std::vector<float> dx(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = call.channel_of(i);
    const auto mean_dy = static_cast<float>(gradients.bias[c] / n);
    const auto mean_product = static_cast<float>(gradients.scale[c] / n);
    dx[i] = scale[c] * inverse[c] * (dy[i] - mean_dy - (x[i] - mean[c]) * inverse[c] * mean_product);
  }
  return dx;
}

}  // namespace
}  // namespace standin::libraries

using namespace standin::libraries;

extern "C" {

cudnnStatus_t cudnnDeriveBNTensorDescriptor(cudnnTensorDescriptor_t derived, const cudnnTensorDescriptor_t x,
                                            cudnnBatchNormMode_t mode) {
  constexpr const char* kCall = "cudnnDeriveBNTensorDescriptor";
  return entry(kCall, [&] {
    auto& target = alive(derived, kCall);
    const cudnnTensorStruct& in = described<cudnnTensorStruct>(x, kCall);
    require_supported(mode == CUDNN_BATCHNORM_SPATIAL || mode == CUDNN_BATCHNORM_SPATIAL_PERSISTENT,
                      "the stand-in has no other mode than the spatial ones");
    target = {true, in.format, in.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT, 1, in.c,
              1,    1};
  });
}

cudnnStatus_t cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    const cudnnTensorDescriptor_t x_descriptor, const void* x, const cudnnTensorDescriptor_t y_descriptor,
    void* y, const cudnnTensorDescriptor_t parameters, const void* scale, const void* bias, double factor,
    void* running_mean, void* running_variance, double epsilon, void* saved_mean, void* saved_inverse) {
  constexpr const char* kCall = "cudnnBatchNormalizationForwardTraining";
  return entry(kCall, [&] {
    const cudaStream_t stream = alive(handle, kCall).stream;
    const NormCall call = agreed_norm(kCall, mode, x_descriptor, y_descriptor, parameters, epsilon);
    const Blend blend = read_blend(alpha, beta);
    require_parameter(x != nullptr && y != nullptr && scale != nullptr && bias != nullptr,
                      "a tensor is null");
    require_both_or_none(running_mean, running_variance, "running statistics");
    require_both_or_none(saved_mean, saved_inverse, "saved statistics");
    const RunningStatistics running{static_cast<float*>(running_mean), static_cast<float*>(running_variance),
                                    factor};
    Arguments arguments(kCall);
    arguments.reads("x", x, bytes_of(call.x), size_of(call.type));
    arguments.writes("y", y, bytes_of(call.x), size_of(call.type));
    reads_parameter(arguments, call, "bnScale", scale);
    reads_parameter(arguments, call, "bnBias", bias);
    writes_parameter(arguments, call, "resultRunningMean", running_mean);
    writes_parameter(arguments, call, "resultRunningVariance", running_variance);
    writes_parameter(arguments, call, "resultSaveMean", saved_mean);
    writes_parameter(arguments, call, "resultSaveInvVariance", saved_inverse);
    arguments.enqueue(stream, [=] {
      const std::vector<float> values = load(x, call.type, call.count());
      const Statistics batch = statistics_of(call, values);
      const std::vector<float> mean = to_floats(batch.mean);
      const std::vector<float> inverse = inverse_deviations(call, batch.variance);
      store(y, call.type,
            normalised(call, values, mean, inverse, static_cast<const float*>(scale),
                       static_cast<const float*>(bias)),
            blend);
      if (running.mean != nullptr) {
        running.step(call, batch);
      }
      if (saved_mean != nullptr) {
        std::memcpy(saved_mean, mean.data(), call.parameter_bytes);
        std::memcpy(saved_inverse, inverse.data(), call.parameter_bytes);
      }
    });
  });
}

cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    const cudnnTensorDescriptor_t x_descriptor, const void* x, const cudnnTensorDescriptor_t y_descriptor,
    void* y, const cudnnTensorDescriptor_t parameters, const void* scale, const void* bias, const void* mean,
    const void* variance, double epsilon) {
  constexpr const char* kCall = "cudnnBatchNormalizationForwardInference";
  return entry(kCall, [&] {
    const cudaStream_t stream = alive(handle, kCall).stream;
    const NormCall call = agreed_norm(kCall, mode, x_descriptor, y_descriptor, parameters, epsilon);
    const Blend blend = read_blend(alpha, beta);
    require_parameter(x != nullptr && y != nullptr && scale != nullptr && bias != nullptr &&
                          mean != nullptr && variance != nullptr,
                      "a tensor is null");
    Arguments arguments(kCall);
    arguments.reads("x", x, bytes_of(call.x), size_of(call.type));
    arguments.writes("y", y, bytes_of(call.x), size_of(call.type));
    reads_parameter(arguments, call, "bnScale", scale);
    reads_parameter(arguments, call, "bnBias", bias);
    reads_parameter(arguments, call, "estimatedMean", mean);
    reads_parameter(arguments, call, "estimatedVariance", variance);
    arguments.enqueue(stream, [=] {
      const auto* variances = static_cast<const float*>(variance);
      const std::vector<float> inverse =
          inverse_deviations(call, std::vector<double>(variances, variances + call.channels));
      store(y, call.type,
            normalised(call, load(x, call.type, call.count()), load(mean, Type::kFloat, call.channels),
                       inverse, static_cast<const float*>(scale), static_cast<const float*>(bias)),
            blend);
    });
  });
}

cudnnStatus_t cudnnBatchNormalizationBackward(cudnnHandle_t handle, cudnnBatchNormMode_t mode,
                                              const void* alpha_data, const void* beta_data,
                                              const void* alpha_parameters, const void* beta_parameters,
                                              const cudnnTensorDescriptor_t x_descriptor, const void* x,
                                              const cudnnTensorDescriptor_t dy_descriptor, const void* dy,
                                              const cudnnTensorDescriptor_t dx_descriptor, void* dx,
                                              const cudnnTensorDescriptor_t parameters, const void* scale,
                                              void* dscale, void* dbias, double epsilon,
                                              const void* saved_mean, const void* saved_inverse) {
  constexpr const char* kCall = "cudnnBatchNormalizationBackward";
  return entry(kCall, [&] {
    const cudaStream_t stream = alive(handle, kCall).stream;
    const NormCall call = agreed_norm(kCall, mode, x_descriptor, dy_descriptor, parameters, epsilon);
    agreed_norm(kCall, mode, x_descriptor, dx_descriptor, parameters, epsilon);
    const Blend data_blend = read_blend(alpha_data, beta_data);
    const Blend parameter_blend = read_blend(alpha_parameters, beta_parameters);
    require_parameter(x != nullptr && dy != nullptr && dx != nullptr && scale != nullptr &&
                          dscale != nullptr && dbias != nullptr,
                      "a tensor is null");
    require_both_or_none(saved_mean, saved_inverse, "saved statistics");
    Arguments arguments(kCall);
    arguments.reads("x", x, bytes_of(call.x), size_of(call.type));
    arguments.reads("dy", dy, bytes_of(call.x), size_of(call.type));
    arguments.writes("dx", dx, bytes_of(call.x), size_of(call.type));
    reads_parameter(arguments, call, "bnScale", scale);
    writes_parameter(arguments, call, "dBnScaleResult", dscale);
    writes_parameter(arguments, call, "dBnBiasResult", dbias);
    reads_parameter(arguments, call, "savedMean", saved_mean);
    reads_parameter(arguments, call, "savedInvVariance", saved_inverse);
    arguments.enqueue(stream, [=] {
      const std::vector<float> values = load(x, call.type, call.count());
      const std::vector<float> gradient = load(dy, call.type, call.count());
      const auto [mean, inverse] = saved_or_anew(call, values, saved_mean, saved_inverse);
      const NormGradients gradients = parameter_gradients(call, values, gradient, mean, inverse);
      store(dx, call.type,
            data_gradient(call, values, gradient, mean, inverse, static_cast<const float*>(scale), gradients),
            data_blend);
      store(dscale, Type::kFloat, to_floats(gradients.scale), parameter_blend);
      store(dbias, Type::kFloat, to_floats(gradients.bias), parameter_blend);
    });
  });
}

}  // extern "C"
