#include "compute/cuda/norm_relu_pool.hpp"

namespace convnet::cuda {
namespace {

template <class T>
class FusedNormReluPool final : public NormReluPool<T> {
 public:
  FusedNormReluPool(cudaStream_t stream, const ImageShape& input, int max_batch,
                    const NormTensors<T>& tensors);

  void forward(int batch, T* x, T* y, DeviceCommunicator* communicator) override;
  void infer(int batch, T* x, T* y) override;
  const T* backward(int batch, T* x, const T* dy, DeviceCommunicator* communicator) override;

 private:
  // What the kernels leave for a batch of this size.
  ChannelSums sums_of(int batch) const {
    return {parts_.data(), sum_parts(batch), static_cast<double>(batch * input_.pixels()), nullptr};
  }
  ChannelSums sums_of_all_ranks(const ChannelSums& own, DeviceCommunicator* communicator);

  cudaStream_t stream_;
  ImageShape input_;
  DeviceArray<std::uint8_t> places_;  // of each window's maximum
  DeviceArray<double> parts_;
  DeviceArray<double> totals_;  // over all ranks, and the count
  DeviceArray<float> floats_;   // what arrays_ points to
  DeviceArray<double> inverse_deviation_;
  NormArrays arrays_;
  float* dgamma_;
  float* dbeta_;
};

template <class T>
FusedNormReluPool<T>::FusedNormReluPool(cudaStream_t stream, const ImageShape& input, int max_batch,
                                        const NormTensors<T>& tensors)
    : stream_(stream),
      input_(input),
      places_(static_cast<std::size_t>(max_batch) * static_cast<std::size_t>(input.channels) *
              static_cast<std::size_t>((input.height / 2) * (input.width / 2))),
      parts_(static_cast<std::size_t>(sum_parts(max_batch)) * 2 * static_cast<std::size_t>(input.channels)),
      totals_(2 * static_cast<std::size_t>(input.channels) + 1),
      floats_(5 * static_cast<std::size_t>(input.channels)),
      inverse_deviation_(static_cast<std::size_t>(input.channels)),
      dgamma_(tensors.dgamma),
      dbeta_(tensors.dbeta) {
  float* const floats = floats_.data();
  const std::int64_t channels = input.channels;
  arrays_ = {.channels = input.channels,
             .bias = tensors.bias,
             .gamma = tensors.gamma,
             .beta = tensors.beta,
             .running_mean = tensors.running_mean,
             .running_var = tensors.running_var,
             .mean = floats,
             .inverse_deviation = inverse_deviation_.data(),
             .scale = floats + channels,
             .shift = floats + 2 * channels,
             .slope = floats + 3 * channels,
             .offset = floats + 4 * channels};
}

template <class T>
ChannelSums FusedNormReluPool<T>::sums_of_all_ranks(const ChannelSums& own,
                                                    DeviceCommunicator* communicator) {
  if (communicator == nullptr) {
    return own;
  }
  add_parts(stream_, input_.channels, own, totals_.data());
  communicator->start_sum(stream_, totals_.data(), totals_.size());
  communicator->finish(stream_);
  return {totals_.data(), 1, 0.0, totals_.data() + totals_.size() - 1};
}

template <class T>
void FusedNormReluPool<T>::forward(int batch, T* x, T* y, DeviceCommunicator* communicator) {
  const NormBatch shape{batch, input_};
  const ChannelSums own = sums_of(batch);
  if (batch > 0) {
    channel_sums(stream_, shape, x, own);
  }
  set_statistics(stream_, sums_of_all_ranks(own, communicator), arrays_);
  normalise_relu_pool(stream_, shape, x, arrays_, y, places_.data());
}

template <class T>
void FusedNormReluPool<T>::infer(int batch, T* x, T* y) {
  set_inference_scale(stream_, arrays_);
  normalise_relu_pool<T>(stream_, {batch, input_}, x, arrays_, y, nullptr);
}

template <class T>
const T* FusedNormReluPool<T>::backward(int batch, T* x, const T* dy, DeviceCommunicator* communicator) {
  const NormBatch shape{batch, input_};
  const ChannelSums own = sums_of(batch);
  if (batch > 0) {
    gradient_sums(stream_, shape, x, dy, places_.data(), arrays_.mean, own);
    set_norm_gradients(stream_, own, arrays_, dgamma_, dbeta_);
  }
  const ChannelSums all = sums_of_all_ranks(own, communicator);
  if (batch > 0) {
    set_input_terms(stream_, all, arrays_);
    replace_by_gradient(stream_, shape, x, dy, places_.data(), arrays_);
  }
  return x;
}

}  // namespace

template <class T>
std::unique_ptr<NormReluPool<T>> make_fused_norm_relu_pool(const Context& context, const ImageShape& input,
                                                           int max_batch, const NormTensors<T>& tensors) {
  return std::make_unique<FusedNormReluPool<T>>(context.stream.get(), input, max_batch, tensors);
}

template std::unique_ptr<NormReluPool<float>> make_fused_norm_relu_pool(const Context&, const ImageShape&,
                                                                        int, const NormTensors<float>&);
template std::unique_ptr<NormReluPool<__nv_bfloat16>> make_fused_norm_relu_pool(
    const Context&, const ImageShape&, int, const NormTensors<__nv_bfloat16>&);

}  // namespace convnet::cuda
