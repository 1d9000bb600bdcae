#include "compute/cpu/convolution.hpp"

#include <optional>

namespace convnet::cpu {
namespace {

using dnnl::memory;

memory::desc describe(const memory::dims& dimensions, memory::format_tag layout) {
  return {dimensions, memory::data_type::f32, layout};
}

// oneDNN takes pointers to mutable memory also for what it only reads.
memory over(const memory::desc& description, const dnnl::engine& engine, const float* values) {
  return {description, engine, const_cast<float*>(values)};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

dnnl::reorder make_reorder(const dnnl::engine& engine, const memory::desc& from, const memory::desc& to) {
  return dnnl::reorder(dnnl::reorder::primitive_desc(engine, from, engine, to));
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

}  // namespace

// All for one batch size: each primitive, and the weights in the layout that it likes best.
struct Convolution::Primitives {
  Primitives(const dnnl::engine& engine, int batch, const ImageShape& in, const ConvBlock& block)
      : tensors(describe_tensors(batch, in, block)),
        canonical_desc(describe(weight_dimensions(in, block), memory::format_tag::oihw)),
        forward_desc(describe_forward(engine, tensors)),
        forward(forward_desc),
        forward_weights(forward_desc.weights_desc(), engine),
        arrange_forward(make_reorder(engine, canonical_desc, forward_desc.weights_desc())),
        weights_desc(describe_backward_weights(engine, tensors, forward_desc)),
        backward_weights(weights_desc),
        weights_gradient(weights_desc.diff_weights_desc(), engine),
        restore_gradient(make_reorder(engine, weights_desc.diff_weights_desc(), canonical_desc)) {}

  // Made on demand: the first convolution of a network never asks for its data gradient.
  void add_data_gradient(const dnnl::engine& engine) {
    data_desc = describe_backward_data(engine, tensors, forward_desc);
    backward_data = dnnl::convolution_backward_data(data_desc);
    data_weights = memory(data_desc.weights_desc(), engine);
    arrange_data = make_reorder(engine, canonical_desc, data_desc.weights_desc());
  }

  ConvolutionTensors tensors;
  memory::desc canonical_desc;

  dnnl::convolution_forward::primitive_desc forward_desc;
  dnnl::convolution_forward forward;
  memory forward_weights;
  dnnl::reorder arrange_forward;

  dnnl::convolution_backward_weights::primitive_desc weights_desc;
  dnnl::convolution_backward_weights backward_weights;
  memory weights_gradient;
  dnnl::reorder restore_gradient;

  dnnl::convolution_backward_data::primitive_desc data_desc;
  std::optional<dnnl::convolution_backward_data> backward_data;
  memory data_weights;
  dnnl::reorder arrange_data;
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
  const auto& engine = context_->engine;
  memory canonical = over(p.canonical_desc, engine, weights.data());
  p.arrange_forward.execute(context_->stream, canonical, p.forward_weights);
  p.forward.execute(context_->stream, {{DNNL_ARG_SRC, over(p.forward_desc.src_desc(), engine, x)},
                                       {DNNL_ARG_WEIGHTS, p.forward_weights},
                                       {DNNL_ARG_BIAS, over(p.forward_desc.bias_desc(), engine, bias.data())},
                                       {DNNL_ARG_DST, over(p.forward_desc.dst_desc(), engine, y)}});
  context_->stream.wait();
}

void Convolution::backward_weights(int batch, const float* x, const float* dy, std::span<float> dweights) {
  Primitives& p = primitives(batch);
  const auto& engine = context_->engine;
  p.backward_weights.execute(context_->stream,
                             {{DNNL_ARG_SRC, over(p.weights_desc.src_desc(), engine, x)},
                              {DNNL_ARG_DIFF_DST, over(p.weights_desc.diff_dst_desc(), engine, dy)},
                              {DNNL_ARG_DIFF_WEIGHTS, p.weights_gradient}});
  memory canonical = over(p.canonical_desc, engine, dweights.data());
  p.restore_gradient.execute(context_->stream, p.weights_gradient, canonical);
  context_->stream.wait();
}

void Convolution::backward_data(int batch, const float* dy, std::span<const float> weights, float* dx) {
  Primitives& p = primitives(batch);
  const auto& engine = context_->engine;
  if (!p.backward_data) {
    p.add_data_gradient(engine);
  }
  memory canonical = over(p.canonical_desc, engine, weights.data());
  p.arrange_data.execute(context_->stream, canonical, p.data_weights);
  p.backward_data->execute(context_->stream,
                           {{DNNL_ARG_DIFF_DST, over(p.data_desc.diff_dst_desc(), engine, dy)},
                            {DNNL_ARG_WEIGHTS, p.data_weights},
                            {DNNL_ARG_DIFF_SRC, over(p.data_desc.diff_src_desc(), engine, dx)}});
  context_->stream.wait();
}

}  // namespace convnet::cpu
