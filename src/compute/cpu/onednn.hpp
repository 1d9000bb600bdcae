#pragma once

#include <dnnl.hpp>

// What differs between oneDNN 2 and oneDNN 3 is here and nowhere else: 3 makes a primitive's description in
// one step, 2 through an operation descriptor. Convolutions have stride 1 and take what is nearest the given
// layouts.

namespace convnet::cpu {

// The CPU as oneDNN sees it, and the queue of this replica's primitives.
struct OneDnn {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

// The tensors of one convolution, as oneDNN describes them.
struct ConvolutionTensors {
  dnnl::memory::desc source;
  dnnl::memory::desc weights;
  dnnl::memory::desc bias;
  dnnl::memory::desc destination;
  dnnl::memory::dims padding;  // rows and columns, the same on both sides
};

inline const dnnl::memory::dims kUnitStrides{1, 1};

inline auto describe_forward(const dnnl::engine& engine, const ConvolutionTensors& tensors) {
  using Forward = dnnl::convolution_forward;
  constexpr auto kKind = dnnl::prop_kind::forward_training;
  constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return Forward::primitive_desc(engine, kKind, kAlgorithm, tensors.source, tensors.weights, tensors.bias,
                                 tensors.destination, kUnitStrides, tensors.padding, tensors.padding);
#else
  return Forward::primitive_desc({kKind, kAlgorithm, tensors.source, tensors.weights, tensors.bias,
                                  tensors.destination, kUnitStrides, tensors.padding, tensors.padding},
                                 engine);
#endif
}

inline auto describe_backward_weights(const dnnl::engine& engine, const ConvolutionTensors& tensors,
                                      const dnnl::convolution_forward::primitive_desc& forward) {
  using BackwardWeights = dnnl::convolution_backward_weights;
  constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return BackwardWeights::primitive_desc(engine, kAlgorithm, tensors.source, tensors.weights,
                                         tensors.destination, kUnitStrides, tensors.padding, tensors.padding,
                                         forward);
#else
  return BackwardWeights::primitive_desc({kAlgorithm, tensors.source, tensors.weights, tensors.destination,
                                          kUnitStrides, tensors.padding, tensors.padding},
                                         engine, forward);
#endif
}

inline auto describe_backward_data(const dnnl::engine& engine, const ConvolutionTensors& tensors,
                                   const dnnl::convolution_forward::primitive_desc& forward) {
  using BackwardData = dnnl::convolution_backward_data;
  constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return BackwardData::primitive_desc(engine, kAlgorithm, tensors.source, tensors.weights,
                                      tensors.destination, kUnitStrides, tensors.padding, tensors.padding,
                                      forward);
#else
  return BackwardData::primitive_desc({kAlgorithm, tensors.source, tensors.weights, tensors.destination,
                                       kUnitStrides, tensors.padding, tensors.padding},
                                      engine, forward);
#endif
}

}  // namespace convnet::cpu
