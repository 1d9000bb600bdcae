#include <hwy/highway.h>
#include <omp.h>

#include <string>

#include "compute/cpu/apply_update.hpp"
#include "compute/cpu/buffer.hpp"
#include "compute/cpu/convolution.hpp"
#include "compute/cpu/cpu_replica.hpp"
#include "compute/cpu/first_convolution.hpp"
#include "compute/cpu/for_each_image.hpp"
#include "compute/cpu/gather.hpp"
#include "compute/cpu/linear.hpp"
#include "compute/cpu/norm_relu_pool.hpp"
#include "compute/cpu/softmax_cross_entropy.hpp"
#include "compute/operations.hpp"

namespace convnet::cpu {
namespace {

Buffer<float> channels_last(const Floats& values, const ImageShape& shape) {
  Buffer<float> result(values.size());
  const auto pixels = static_cast<std::size_t>(shape.pixels());
  const auto channels = static_cast<std::size_t>(shape.channels);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t image = i / (pixels * channels);
    const std::size_t channel = i / pixels % channels;
    result.data()[(image * pixels + i % pixels) * channels + channel] = values[i];
  }
  return result;
}

Floats channels_first(const Buffer<float>& values, const ImageShape& shape) {
  Floats result(values.size());
  const auto pixels = static_cast<std::size_t>(shape.pixels());
  const auto channels = static_cast<std::size_t>(shape.channels);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t image = i / (pixels * channels);
    const std::size_t channel = i / pixels % channels;
    result[i] = values.data()[(image * pixels + i % pixels) * channels + channel];
  }
  return result;
}

Buffer<float> images(int batch, const ImageShape& shape) {
  return Buffer<float>(static_cast<std::size_t>(batch * shape.size()));
}

class CpuOperations final : public Operations {
 public:
  explicit CpuOperations(int threads) { omp_set_num_threads(threads); }

  Floats convolution_forward(int batch, const ImageShape& input, const ConvBlock& block, const Floats& x,
                             const Floats& weights, const Floats& bias) override {
    const ImageShape output = block.convolved(input);
    const auto rearranged = channels_last(x, input);
    auto y = images(batch, output);
    if (FirstConvolution::takes(input, block)) {
      FirstConvolution convolution(input, block, batch);
      convolution.set_weights(weights, bias);
      for_each_image(batch, [&](int n) {
        convolution.forward(n, rearranged.data() + n * input.size(), y.data() + n * output.size());
      });
    } else {
      Convolution(context_, input, block).forward(batch, rearranged.data(), weights, bias, y.data());
    }
    return channels_first(y, output);
  }

  Floats convolution_backward_weights(int batch, const ImageShape& input, const ConvBlock& block,
                                      const Floats& x, const Floats& dy) override {
    const ImageShape output = block.convolved(input);
    const auto x_last = channels_last(x, input);
    const auto dy_last = channels_last(dy, output);
    Floats dweights(
        static_cast<std::size_t>(block.out_channels * input.channels * block.kernel * block.kernel));
    if (FirstConvolution::takes(input, block)) {
      FirstConvolution convolution(input, block, batch);
      const Floats bias(static_cast<std::size_t>(block.out_channels));
      convolution.set_weights(dweights, bias);
      auto y = images(batch, output);
      for_each_image(batch, [&](int n) {
        convolution.forward(n, x_last.data() + n * input.size(), y.data() + n * output.size());
        convolution.backward(n, dy_last.data() + n * output.size());
      });
      convolution.add_up(batch, dweights);
    } else {
      Convolution(context_, input, block).backward_weights(batch, x_last.data(), dy_last.data(), dweights);
    }
    return dweights;
  }

  Floats convolution_backward_data(int batch, const ImageShape& input, const ConvBlock& block,
                                   const Floats& dy, const Floats& weights) override {
    Convolution convolution(context_, input, block);
    auto dx = images(batch, input);
    convolution.backward_data(batch, channels_last(dy, convolution.output()).data(), weights, dx.data());
    return channels_first(dx, input);
  }

  NormReluPoolPass norm_relu_pool(const NormReluPoolInput& in, const Floats& dy) override {
    NormReluPool operation(in.shape, in.batch, nullptr);
    const ImageShape& out = operation.output();
    auto x = channels_last(in.x, in.shape);
    const auto dy_last = channels_last(dy, out);
    auto y = images(in.batch, out);
    const auto x_of = [&](int n) { return x.data() + n * in.shape.size(); };
    const auto dy_of = [&](int n) { return dy_last.data() + n * out.size(); };
    NormReluPoolPass pass{{}, in.running_mean,         in.running_var,
                          {}, Floats(in.gamma.size()), Floats(in.gamma.size())};
    for_each_image(in.batch, [&](int n) { operation.sum_image(n, x_of(n)); });
    operation.take_batch_statistics(in.batch, in.gamma, in.beta, pass.running_mean, pass.running_var);
    for_each_image(in.batch, [&](int n) { operation.forward_image(n, x_of(n), y.data() + n * out.size()); });
    pass.y = channels_first(y, out);
    for_each_image(in.batch, [&](int n) { operation.sum_image_gradient(n, dy_of(n)); });
    operation.take_gradient_sums(in.batch, in.gamma, pass.dgamma, pass.dbeta);
    for_each_image(in.batch, [&](int n) { operation.backward_image(n, x_of(n), dy_of(n), x_of(n)); });
    pass.dx = channels_first(x, in.shape);
    return pass;
  }

  Floats norm_relu_pool_infer(const NormReluPoolInput& in) override {
    NormReluPool operation(in.shape, in.batch, nullptr);
    const ImageShape& out = operation.output();
    const auto x = channels_last(in.x, in.shape);
    auto y = images(in.batch, out);
    operation.take_running_statistics(in.gamma, in.beta, in.running_mean, in.running_var);
    for_each_image(in.batch, [&](int n) {
      operation.infer_image(x.data() + n * in.shape.size(), y.data() + n * out.size());
    });
    return channels_first(y, out);
  }

  LinearPass linear(int batch, const ImageShape& input, const Floats& x, const Floats& weights,
                    const Floats& bias, const Floats& dy) override {
    Linear operation(input, static_cast<int>(bias.size()));
    const auto rearranged = channels_last(x, input);
    auto dx = images(batch, input);
    LinearPass pass{Floats(dy.size()), Floats(weights.size()), Floats(bias.size()), {}};
    operation.forward(batch, rearranged.data(), weights, bias, pass.y.data());
    operation.backward(batch, rearranged.data(), dy.data(), pass.dweights, pass.dbias, dx.data());
    pass.dx = channels_first(dx, input);
    return pass;
  }

  LossPass softmax_cross_entropy(const Floats& logits, std::span<const std::int32_t> labels,
                                 float scale) override {
    LossPass pass{.dlogits = Floats(logits.size())};
    const LossSums sums = cpu::SoftmaxCrossEntropy(logits.size())(logits, labels, scale, pass.dlogits.data());
    pass.loss_sum = sums.loss;
    pass.correct = sums.correct;
    return pass;
  }

  Floats gather_images(std::span<const std::uint8_t> all, const ImageShape& shape,
                       std::span<const std::int32_t> rows) override {
    auto x = images(static_cast<int>(rows.size()), shape);
    cpu::gather_images(all, shape, rows, x.data());
    return channels_first(x, shape);
  }

  void apply_update(const UpdateRule& rule, const Floats& gradients, Floats& parameters,
                    std::vector<Floats>& moments) override {
    cpu::apply_update(rule, gradients, parameters, moments);
  }

 private:
  OneDnn context_;
};

}  // namespace
}  // namespace convnet::cpu

namespace convnet {
namespace {

// Has Highway choose among these instruction sets from now on; 0: among all that the processor has.
void choose_among(std::int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().DeInit();  // the next kernel chooses anew
}

Backend cpu_backend_on(std::int64_t targets, const std::string& name, int threads) {
  return {.name = name,
          .unavailable = std::nullopt,
          .make_operations =
              [targets, threads] {
                choose_among(targets);
                return std::make_unique<cpu::CpuOperations>(threads);
              },
          .make_replica =
              [targets, threads](ReplicaOptions options) {
                choose_among(targets);
                options.threads = threads;
                return make_cpu_replica(options);
              }};
}

}  // namespace

Backend cpu_backend(int threads) {
  return cpu_backend_on(0, "cpu_" + std::to_string(threads) + (threads == 1 ? "_thread" : "_threads"),
                        threads);
}

std::vector<Backend> cpu_backends_of_lesser_instruction_sets() {
  choose_among(0);  // those that the processor has
  std::vector<Backend> backends;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    backends.push_back(cpu_backend_on(target, std::string("cpu_") + hwy::TargetName(target), 1));
  }
  backends.erase(backends.begin());  // the best comes first
  return backends;
}

}  // namespace convnet
