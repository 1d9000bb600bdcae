#include "compute/cpu/convolution.hpp"

#include <optional>

#include "compute/cpu/primitive_call.hpp"

namespace convnet::cpu {
namespace {

using dnnl::memory;
constexpr auto kPlacedByCall = &PrimitiveArgument::placed_by_call;

memory::desc describe(const memory::dims& dimensions, memory::format_tag layout) {
  return {dimensions, memory::data_type::f32, layout};
}

memory::dims weight_dimensions(const ImageShape& in, const ConvBlock& block) {
  return {block.out_channels, in.channels, block.kernel, block.kernel};
}

ConvolutionTensors describe_tensors(int batch, const ImageShape& in, const ConvBlock& block) {
  using Tag = memory::format_tag;
  const ImageShape out = block.convolved(in);
  return {.source = describe({batch, in.channels, in.height, in.width}, Tag::nhwc),
          .weights = describe(weight_dimensions(in, block), Tag::any),
          .bias = describe({out.channels}, Tag::a),
          .destination = describe({batch, out.channels, out.height, out.width}, Tag::nhwc),
          .padding = {block.padding, block.padding}};
}

// Weights from the canonical layout to the one that a primitive likes best.
PrimitiveCall arrange(const dnnl::engine& engine, const memory::desc& canonical, const memory& weights) {
  return {dnnl::reorder(dnnl::reorder::primitive_desc(engine, canonical, engine, weights.get_desc())),
          {kPlacedByCall(DNNL_ARG_FROM, canonical, engine), {DNNL_ARG_TO, weights}}};
}

// The other way.
PrimitiveCall restore(const dnnl::engine& engine, const memory& weights, const memory::desc& canonical) {
  return {dnnl::reorder(dnnl::reorder::primitive_desc(engine, weights.get_desc(), engine, canonical)),
          {{DNNL_ARG_FROM, weights}, kPlacedByCall(DNNL_ARG_TO, canonical, engine)}};
}

}  // namespace

// All for one batch size.
struct Convolution::Primitives {
  Primitives(const dnnl::engine& engine, int batch, const ImageShape& in, const ConvBlock& block)
      : tensors(describe_tensors(batch, in, block)),
        canonical(describe(weight_dimensions(in, block), memory::format_tag::oihw)),
        forward_description(describe_forward(engine, tensors)) {}

  ConvolutionTensors tensors;
  memory::desc canonical;
  dnnl::convolution_forward::primitive_desc forward_description;

  // Each made at its first use: inference has no gradients, a network's first convolution none of its data.
  struct Pass {
    PrimitiveCall arrange;  // the weights before the convolution, their gradient behind it
    PrimitiveCall convolve;
  };
  std::optional<Pass> forward, backward_weights, backward_data;

  void make_forward(const dnnl::engine& engine) {
    const auto& description = forward_description;
    const memory weights(description.weights_desc(), engine);
    forward.emplace(Pass{arrange(engine, canonical, weights),
                         {dnnl::convolution_forward(description),
                          {kPlacedByCall(DNNL_ARG_SRC, description.src_desc(), engine),
                           {DNNL_ARG_WEIGHTS, weights},
                           kPlacedByCall(DNNL_ARG_BIAS, description.bias_desc(), engine),
                           kPlacedByCall(DNNL_ARG_DST, description.dst_desc(), engine)}}});
  }

  void make_backward_weights(const dnnl::engine& engine) {
    const auto description = describe_backward_weights(engine, tensors, forward_description);
    const memory gradient(description.diff_weights_desc(), engine);
    backward_weights.emplace(Pass{restore(engine, gradient, canonical),
                                  {dnnl::convolution_backward_weights(description),
                                   {kPlacedByCall(DNNL_ARG_SRC, description.src_desc(), engine),
                                    kPlacedByCall(DNNL_ARG_DIFF_DST, description.diff_dst_desc(), engine),
                                    {DNNL_ARG_DIFF_WEIGHTS, gradient}}}});
  }

  void make_backward_data(const dnnl::engine& engine) {
    const auto description = describe_backward_data(engine, tensors, forward_description);
    const memory weights(description.weights_desc(), engine);
    backward_data.emplace(Pass{arrange(engine, canonical, weights),
                               {dnnl::convolution_backward_data(description),
                                {kPlacedByCall(DNNL_ARG_DIFF_DST, description.diff_dst_desc(), engine),
                                 {DNNL_ARG_WEIGHTS, weights},
                                 kPlacedByCall(DNNL_ARG_DIFF_SRC, description.diff_src_desc(), engine)}}});
  }
};

Convolution::Convolution(OneDnn& context, const ImageShape& input, const ConvBlock& block)
    : context_(&context), input_(input), block_(block) {}
Convolution::~Convolution() = default;
Convolution::Convolution(Convolution&&) noexcept = default;
Convolution& Convolution::operator=(Convolution&&) noexcept = default;

Convolution::Primitives& Convolution::primitives(int batch) {
  auto& entry = by_batch_[batch];
  if (!entry) {
    entry = std::make_unique<Primitives>(context_->engine, batch, input_, block_);
  }
  return *entry;
}

void Convolution::forward(int batch, const float* x, std::span<const float> weights,
                          std::span<const float> bias, float* y) {
  Primitives& p = primitives(batch);
  if (!p.forward) {
    p.make_forward(context_->engine);
  }
  p.forward->arrange(context_->stream, {weights.data()});
  p.forward->convolve(context_->stream, {x, bias.data(), y});
  context_->stream.wait();
}

void Convolution::backward_weights(int batch, const float* x, const float* dy, std::span<float> dweights) {
  Primitives& p = primitives(batch);
  if (!p.backward_weights) {
    p.make_backward_weights(context_->engine);
  }
  p.backward_weights->convolve(context_->stream, {x, dy});
  p.backward_weights->arrange(context_->stream, {dweights.data()});
  context_->stream.wait();
}

void Convolution::backward_data(int batch, const float* dy, std::span<const float> weights, float* dx) {
  Primitives& p = primitives(batch);
  if (!p.backward_data) {
    p.make_backward_data(context_->engine);
  }
  p.backward_data->arrange(context_->stream, {weights.data()});
  p.backward_data->convolve(context_->stream, {dy, dx});
  context_->stream.wait();
}

}  // namespace convnet::cpu
