#include "compute/cuda/cuda_operations.hpp"

#include <cstdlib>

#include "compute/cuda/context.hpp"
#include "compute/cuda/convolution.hpp"
#include "compute/cuda/cuda_replica.hpp"
#include "compute/cuda/flat_kernels.hpp"
#include "compute/cuda/gather.hpp"
#include "compute/cuda/gpu.hpp"
#include "compute/cuda/norm_relu_pool.hpp"
#include "compute/cuda/softmax_cross_entropy.hpp"
#include "compute/cuda/transfer.hpp"
#include "convnet/error.hpp"

namespace convnet::cuda {
namespace {

// Operations one by one in float32, each between copies to the device and back.
class CudaOperations final : public Operations {
 public:
  explicit CudaOperations(const CudaOptions& options) : context_(options) {}

  Floats convolution_forward(int batch, const ImageShape& input, const ConvBlock& block, const Floats& x,
                             const Floats& weights, const Floats& bias) override {
    // This back end leaves the bias to the batch norm behind the convolution: tests of whole replicas see it.
    const ImageShape output = block.convolved(input);
    Floats y = convolve_only(batch, input, block, x, weights);
    const auto pixels = static_cast<std::size_t>(output.pixels());
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] += bias[i / pixels % static_cast<std::size_t>(output.channels)];
    }
    return y;
  }

  Floats convolution_backward_weights(int batch, const ImageShape& input, const ConvBlock& block,
                                      const Floats& x, const Floats& dy) override {
    const auto plan = plan_convolution(cudnn(), input, block, batch, DataGradient::kNeeded, context_.options);
    const DeviceArray<std::byte> workspace(plan.workspace_bytes());
    const DeviceArray<float> dweights(
        static_cast<std::size_t>(block.out_channels * input.channels * block.kernel * block.kernel));
    const auto on_device = put(x);
    const auto gradient = put(dy);
    convolve_weight_gradient(cudnn(), plan, on_device.data(), gradient.data(), dweights.data(),
                             workspace.data());
    return get(dweights);
  }

  Floats convolution_backward_data(int batch, const ImageShape& input, const ConvBlock& block,
                                   const Floats& dy, const Floats& weights) override {
    const auto plan = plan_convolution(cudnn(), input, block, batch, DataGradient::kNeeded, context_.options);
    const DeviceArray<std::byte> workspace(plan.workspace_bytes());
    const DeviceArray<float> dx(static_cast<std::size_t>(batch * input.size()));
    const auto gradient = put(dy);
    const auto filter = put(weights);
    convolve_data_gradient(cudnn(), plan, gradient.data(), filter.data(), dx.data(), workspace.data());
    return get(dx);
  }

  NormReluPoolPass norm_relu_pool(const NormReluPoolInput& in, const Floats& dy) override {
    const Norm norm(*this, in);
    const auto operation = norm.make();
    const auto x = put(in.x);
    const DeviceArray<float> y(dy.size());
    operation->forward(in.batch, x.data(), y.data(), nullptr);
    const auto gradient = put(dy);
    const float* const dx = operation->backward(in.batch, x.data(), gradient.data(), nullptr);
    return {get(y),           get(norm.running_mean), get(norm.running_var), get(dx, in.x.size()),
            get(norm.dgamma), get(norm.dbeta)};
  }

  Floats norm_relu_pool_infer(const NormReluPoolInput& in) override {
    const Norm norm(*this, in);
    const auto operation = norm.make();
    const auto x = put(in.x);
    const DeviceArray<float> y(static_cast<std::size_t>(in.batch * in.shape.channels * (in.shape.height / 2) *
                                                        (in.shape.width / 2)));
    operation->infer(in.batch, x.data(), y.data());
    return get(y);
  }

  LinearPass linear(int batch, const ImageShape& input, const Floats& x, const Floats& weights,
                    const Floats& bias, const Floats& dy) override {
    const LinearShape shape{batch, static_cast<int>(input.size()), static_cast<int>(bias.size())};
    const auto on_device = put(x);
    const auto filter = put(weights);
    const auto offset = put(bias);
    const auto gradient = put(dy);
    const DeviceArray<float> y(dy.size());
    const DeviceArray<float> dweights(weights.size());
    const DeviceArray<float> dbias(bias.size());
    const DeviceArray<float> dx(x.size());
    linear_forward<float>(context_.blas, stream(), shape, on_device.data(), filter.data(), offset.data(),
                          y.data());
    linear_backward<float>(context_.blas, stream(), shape, on_device.data(), filter.data(), gradient.data(),
                           dweights.data(), dbias.data(), dx.data());
    return {get(y), get(dweights), get(dbias), get(dx)};
  }

  LossPass softmax_cross_entropy(const Floats& logits, std::span<const std::int32_t> labels,
                                 float scale) override {
    const auto on_device = put(logits);
    const auto targets = put(labels);
    const auto record = put(std::span<const StepRecord>(std::vector{StepRecord{nullptr, scale, {}}}));
    const auto score = put(std::span<const Score>(std::vector{Score{}}));
    const DeviceArray<float> dlogits(logits.size());
    const DeviceArray<float> tail(2);
    const auto batch = static_cast<int>(labels.size());
    cuda::softmax_cross_entropy(
        stream(), {on_device.data(), targets.data(), batch, static_cast<int>(logits.size()) / batch, false},
        record.data(), dlogits.data(), tail.data(), score.data());
    return {get(score).front().local_loss_sum, static_cast<std::int64_t>(get(tail)[1]), get(dlogits)};
  }

  Floats gather_images(std::span<const std::uint8_t> all, const ImageShape& shape,
                       std::span<const std::int32_t> rows) override {
    const auto images = put(all);
    const auto list = put(rows);
    const auto record = put(std::span<const StepRecord>(std::vector{StepRecord{list.data(), 0.0F, {}}}));
    const auto count = all.size() / static_cast<std::size_t>(shape.size());
    const auto labels = put(std::span<const std::int32_t>(std::vector<std::int32_t>(count)));
    const DeviceArray<float> x(rows.size() * static_cast<std::size_t>(shape.size()));
    const DeviceArray<std::int32_t> batch_labels(rows.size());
    gather(stream(), {images.data(), labels.data()}, record.data(), static_cast<int>(rows.size()),
           shape.size(), x.data(), batch_labels.data());
    return get(x);
  }

  void apply_update(const UpdateRule& rule, const Floats& gradients, Floats& parameters,
                    std::vector<Floats>& moments) override {
    const auto record =
        put(std::span<const StepRecord>(std::vector{StepRecord{nullptr, 0.0F, update_terms(rule)}}));
    const auto score = put(std::span<const Score>(std::vector{Score{}}));
    const auto gradient = put(gradients);
    const auto values = put(parameters);
    std::vector<DeviceArray<float>> kept;
    for (const Floats& moment : moments) {
      kept.push_back(put(moment));
    }
    const UpdateArrays arrays{static_cast<std::int64_t>(parameters.size()), gradient.data(), values.data(),
                              kept.empty() ? nullptr : kept[0].data(),
                              kept.size() < 2 ? nullptr : kept[1].data()};
    if (rule.clip_norm > 0.0) {
      set_clip_factor(stream(), arrays.gradients, arrays.count, record.data(), score.data());
    }
    if (rule.optimizer == Optimizer::kAdamW) {
      apply_adamw(stream(), arrays, record.data(), score.data());
    } else {
      apply_sgd(stream(), arrays, rule.nesterov, record.data(), score.data());
    }
    parameters = get(values);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      moments[i] = get(kept[i]);
    }
  }

 private:
  // A batch norm with its tensors on the device.
  struct Norm {
    Norm(CudaOperations& operations, const NormReluPoolInput& in)
        : owner(operations),
          input(in),
          bias(operations.put(Floats(in.gamma.size()))),
          gamma(operations.put(in.gamma)),
          beta(operations.put(in.beta)),
          running_mean(operations.put(in.running_mean)),
          running_var(operations.put(in.running_var)),
          dgamma(in.gamma.size()),
          dbeta(in.gamma.size()) {}

    std::unique_ptr<NormReluPool<float>> make() const {
      return make_fused_norm_relu_pool<float>(
          owner.context_, input.shape, input.batch,
          {bias.data(), bias.data(), gamma.data(), beta.data(), dgamma.data(), dbeta.data(),
           running_mean.data(), running_var.data()});
    }

    CudaOperations& owner;
    const NormReluPoolInput& input;
    DeviceArray<float> bias, gamma, beta, running_mean, running_var, dgamma, dbeta;
  };

  cudaStream_t stream() const { return context_.stream.get(); }
  cudnnHandle_t cudnn() const { return context_.cudnn.get(); }

  template <class Value>
  DeviceArray<Value> put(std::span<const Value> values) {
    DeviceArray<Value> array(values.size());
    upload(stream(), values, array.data());
    return array;
  }
  DeviceArray<float> put(const Floats& values) { return put(std::span<const float>(values)); }

  template <class Value>
  std::vector<Value> get(const Value* values, std::size_t count) {
    const PinnedArray<Value> staging(count);
    if (count > 0) {
      check(cudaMemcpyAsync(staging.data(), values, staging.bytes(), cudaMemcpyDeviceToHost, stream()),
            "cudaMemcpyAsync");
    }
    check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
    return {staging.data(), staging.data() + count};
  }
  template <class Value>
  std::vector<Value> get(const DeviceArray<Value>& values) {
    return get(values.data(), values.size());
  }

  Floats convolve_only(int batch, const ImageShape& input, const ConvBlock& block, const Floats& x,
                       const Floats& weights) {
    const auto plan = plan_convolution(cudnn(), input, block, batch, DataGradient::kUnused, context_.options);
    const DeviceArray<std::byte> workspace(plan.workspace_bytes());
    const DeviceArray<float> y(static_cast<std::size_t>(batch * block.convolved(input).size()));
    const auto on_device = put(x);
    const auto filter = put(weights);
    convolve(cudnn(), plan, on_device.data(), filter.data(), y.data(), workspace.data());
    return get(y);
  }

  Context context_;
};

// A number that Open MPI tells each process that it starts.
int launcher_number(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::stoi(text);
}

// The GPU of this rank, opened; or why there is none.
struct OpenedGpu {
  std::optional<std::string> unavailable;
  bool is_shared = false;  // with another rank: NCCL would refuse

  OpenedGpu() {
    try {
      const GpuFacts facts = open_gpu(launcher_number("OMPI_COMM_WORLD_LOCAL_RANK", 0));
      is_shared = facts.visible < launcher_number("OMPI_COMM_WORLD_LOCAL_SIZE", 1);
    } catch (const Error& error) {
      unavailable = error.what();
    }
  }
};

}  // namespace
}  // namespace convnet::cuda

namespace convnet {

Backend cuda_backend(const std::string& name, CudaOptions options) {
  const cuda::OpenedGpu gpu;
  if (gpu.is_shared) {
    options.comm = CommLibrary::kMpi;
  }
  return {.name = name,
          .unavailable = gpu.unavailable,
          .make_operations = [options] { return std::make_unique<cuda::CudaOperations>(options); },
          .make_replica =
              [options](ReplicaOptions replica) {
                replica.cuda = options;
                return cuda::make_cuda_replica(replica);
              }};
}

}  // namespace convnet
