#include <cuda_bf16.h>

#include <map>
#include <type_traits>

#include "compute/cuda/convolution.hpp"
#include "compute/cuda/norm_relu_pool.hpp"

namespace convnet::cuda {
namespace {

using ActivationDescriptor = Owned<cudnnActivationDescriptor_t, cudnnDestroyActivationDescriptor>;
using PoolingDescriptor = Owned<cudnnPoolingDescriptor_t, cudnnDestroyPoolingDescriptor>;

constexpr float kOne = 1.0F;
constexpr float kZero = 0.0F;

ActivationDescriptor describe_relu() {
  auto descriptor =
      make_handle<ActivationDescriptor>("cudnnCreateActivationDescriptor", cudnnCreateActivationDescriptor);
  constexpr double kNoCeiling = 0.0;
  check(
      cudnnSetActivationDescriptor(descriptor.get(), CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, kNoCeiling),
      "cudnnSetActivationDescriptor");
  return descriptor;
}

PoolingDescriptor describe_pooling() {
  auto descriptor =
      make_handle<PoolingDescriptor>("cudnnCreatePoolingDescriptor", cudnnCreatePoolingDescriptor);
  check(cudnnSetPooling2dDescriptor(descriptor.get(), CUDNN_POOLING_MAX_DETERMINISTIC, CUDNN_PROPAGATE_NAN, 2,
                                    2, 0, 0, 2, 2),
        "cudnnSetPooling2dDescriptor");
  return descriptor;
}

TensorDescriptor describe_channels(const TensorDescriptor& images) {
  auto descriptor = make_handle<TensorDescriptor>("cudnnCreateTensorDescriptor", cudnnCreateTensorDescriptor);
  check(cudnnDeriveBNTensorDescriptor(descriptor.get(), images.get(), CUDNN_BATCHNORM_SPATIAL),
        "cudnnDeriveBNTensorDescriptor");
  return descriptor;
}

// The descriptors of one batch size.
struct Descriptors {
  Descriptors(int batch, const ImageShape& input, Precision precision)
      : x(describe_images(batch, input, precision)),
        y(describe_images(batch, {input.channels, input.height / 2, input.width / 2}, precision)),
        bias(describe_images(1, {input.channels, 1, 1}, precision)),
        channels(describe_channels(x)) {}

  TensorDescriptor x, y, bias, channels;
};

template <class T>
class CudnnNormReluPool final : public NormReluPool<T> {
 public:
  CudnnNormReluPool(const Context& context, const ImageShape& input, int max_batch,
                    const NormTensors<T>& tensors)
      : cudnn_(context.cudnn.get()),
        input_(input),
        tensors_(tensors),
        relu_(describe_relu()),
        pooling_(describe_pooling()),
        normalised_(static_cast<std::size_t>(max_batch * input.size())),
        gradient_(normalised_.size()),
        saved_mean_(static_cast<std::size_t>(input.channels)),
        saved_inverse_deviation_(saved_mean_.size()) {}

  void forward(int batch, T* x, T* y, DeviceCommunicator* communicator) override;
  void infer(int batch, T* x, T* y) override;
  const T* backward(int batch, T* x, const T* dy, DeviceCommunicator* communicator) override;

 private:
  static constexpr Precision kPrecision = std::is_same_v<T, float> ? Precision::kFp32 : Precision::kBf16;

  const Descriptors& descriptors(int batch) {
    return descriptors_.try_emplace(batch, batch, input_, kPrecision).first->second;
  }
  void add_bias(const Descriptors& of, T* x);
  void relu_pool(const Descriptors& of, T* y);

  cudnnHandle_t cudnn_;
  ImageShape input_;
  NormTensors<T> tensors_;
  ActivationDescriptor relu_;
  PoolingDescriptor pooling_;
  std::map<int, Descriptors> descriptors_;
  DeviceArray<T> normalised_;  // after ReLU, in place
  DeviceArray<T> gradient_;    // of the same
  const T* pooled_ = nullptr;  // the output of the last forward pass
  DeviceArray<float> saved_mean_;
  DeviceArray<float> saved_inverse_deviation_;
};

template <class T>
void CudnnNormReluPool<T>::add_bias(const Descriptors& of, T* x) {
  check(cudnnAddTensor(cudnn_, &kOne, of.bias.get(), tensors_.activation_bias, &kOne, of.x.get(), x),
        "cudnnAddTensor");
}

template <class T>
void CudnnNormReluPool<T>::relu_pool(const Descriptors& of, T* y) {
  check(cudnnActivationForward(cudnn_, relu_.get(), &kOne, of.x.get(), normalised_.data(), &kZero, of.x.get(),
                               normalised_.data()),
        "cudnnActivationForward");
  check(cudnnPoolingForward(cudnn_, pooling_.get(), &kOne, of.x.get(), normalised_.data(), &kZero, of.y.get(),
                            y),
        "cudnnPoolingForward");
}

template <class T>
void CudnnNormReluPool<T>::forward(int batch, T* x, T* y, DeviceCommunicator* /*never*/) {
  const Descriptors& of = descriptors(batch);
  add_bias(of, x);
  check(cudnnBatchNormalizationForwardTraining(
            cudnn_, CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero, of.x.get(), x, of.x.get(), normalised_.data(),
            of.channels.get(), tensors_.gamma, tensors_.beta, kNormMomentum, tensors_.running_mean,
            tensors_.running_var, kNormEpsilon, saved_mean_.data(), saved_inverse_deviation_.data()),
        "cudnnBatchNormalizationForwardTraining");
  relu_pool(of, y);
  pooled_ = y;
}

template <class T>
void CudnnNormReluPool<T>::infer(int batch, T* x, T* y) {
  const Descriptors& of = descriptors(batch);
  add_bias(of, x);
  check(cudnnBatchNormalizationForwardInference(cudnn_, CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero, of.x.get(), x,
                                                of.x.get(), normalised_.data(), of.channels.get(),
                                                tensors_.gamma, tensors_.beta, tensors_.running_mean,
                                                tensors_.running_var, kNormEpsilon),
        "cudnnBatchNormalizationForwardInference");
  relu_pool(of, y);
}

// ReLU may write its gradient over the one it reads. Batch norm writes its own where ReLU's output was.
template <class T>
const T* CudnnNormReluPool<T>::backward(int batch, T* x, const T* dy, DeviceCommunicator* /*never*/) {
  const Descriptors& of = descriptors(batch);
  check(cudnnPoolingBackward(cudnn_, pooling_.get(), &kOne, of.y.get(), pooled_, of.y.get(), dy, of.x.get(),
                             normalised_.data(), &kZero, of.x.get(), gradient_.data()),
        "cudnnPoolingBackward");
  check(cudnnActivationBackward(cudnn_, relu_.get(), &kOne, of.x.get(), normalised_.data(), of.x.get(),
                                gradient_.data(), of.x.get(), normalised_.data(), &kZero, of.x.get(),
                                gradient_.data()),
        "cudnnActivationBackward");
  check(cudnnBatchNormalizationBackward(cudnn_, CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero, &kOne, &kZero,
                                        of.x.get(), x, of.x.get(), gradient_.data(), of.x.get(),
                                        normalised_.data(), of.channels.get(), tensors_.gamma,
                                        tensors_.dgamma, tensors_.dbeta, kNormEpsilon, saved_mean_.data(),
                                        saved_inverse_deviation_.data()),
        "cudnnBatchNormalizationBackward");
  return normalised_.data();
}

}  // namespace

template <class T>
std::unique_ptr<NormReluPool<T>> make_cudnn_norm_relu_pool(const Context& context, const ImageShape& input,
                                                           int max_batch, const NormTensors<T>& tensors) {
  return std::make_unique<CudnnNormReluPool<T>>(context, input, max_batch, tensors);
}

void cudnn_log_softmax(const Context& context, int batch, int classes, const float* logits,
                       float* log_probabilities) {
  const TensorDescriptor rows = describe_images(batch, {classes, 1, 1}, Precision::kFp32);
  check(cudnnSoftmaxForward(context.cudnn.get(), CUDNN_SOFTMAX_LOG, CUDNN_SOFTMAX_MODE_INSTANCE, &kOne,
                            rows.get(), logits, &kZero, rows.get(), log_probabilities),
        "cudnnSoftmaxForward");
}

template std::unique_ptr<NormReluPool<float>> make_cudnn_norm_relu_pool(const Context&, const ImageShape&,
                                                                        int, const NormTensors<float>&);
template std::unique_ptr<NormReluPool<__nv_bfloat16>> make_cudnn_norm_relu_pool(
    const Context&, const ImageShape&, int, const NormTensors<__nv_bfloat16>&);

}  // namespace convnet::cuda
