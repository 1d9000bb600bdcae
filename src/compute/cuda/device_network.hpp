#pragma once

#include <cuda_bf16.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "compute/cuda/buffer.hpp"
#include "compute/cuda/context.hpp"
#include "compute/cuda/convolution.hpp"
#include "compute/cuda/device_layout.hpp"
#include "compute/cuda/norm_relu_pool.hpp"
#include "compute/cuda/softmax_cross_entropy.hpp"

namespace convnet::cuda {

// The flat arrays of a network in device memory, as DeviceLayout lays them out.
struct FlatArrays {
  const float* parameters = nullptr;
  float* gradients = nullptr;
  float* buffers = nullptr;
};

// The layers of the network with their activations, of type T (float or __nv_bfloat16; parameters stay
// float). Everything is queued on the context's stream.
template <class T>
class DeviceNetwork {
 public:
  DeviceNetwork(const Context& context, const Network& network, int max_batch, const DeviceLayout& layout,
                const FlatArrays& arrays);

  // Where a batch's images and labels are to be.
  T* input() const { return input_.data(); }
  std::int32_t* labels() const { return labels_.data(); }

  // Makes what a batch of this size needs. The other functions may then be captured.
  void prepare(int batch);

  // From input() to the logits, with statistics of the batch or running ones.
  void forward(int batch, DeviceCommunicator* batch_norm_communicator);
  void infer(int batch);

  // Loss and correct predictions of the logits (softmax_cross_entropy).
  void compute_loss(int batch, const StepRecord* record, float* tail, Score* score);
  void evaluate_loss(int batch, Score* score);

  // All gradients. Calls `layer_done` with a layer's number, from the last (the linear layer, which counts as
  // one more block) to the first, once its gradients are queued.
  void backward(int batch, DeviceCommunicator* batch_norm_communicator,
                const std::function<void(std::size_t layer)>& layer_done);

 private:
  // One block of the network with the activations that it keeps between forward and backward.
  struct Block {
    ConvBlock shape;
    ImageShape input;
    std::size_t weights = 0;  // offset into the flat parameters
    std::size_t weight_count = 0;
    DeviceArray<T> convolved;
    DeviceArray<T> pooled;
    DeviceArray<T> pooled_gradient;
    std::unique_ptr<NormReluPool<T>> norm_relu_pool;
  };
  // What one batch size needs.
  struct Plan {
    std::vector<ConvolutionPlan> convolutions;
    DeviceArray<std::byte> workspace;  // of all of them
  };

  void cast_parameters();
  const T* block_input(std::size_t index) const;
  void convolve_block(std::size_t index, int batch);
  void forward_linear(int batch);
  const T* as_activations(std::size_t offset) const;
  void store_weight_gradient(const Block& block, const Plan& plan, std::size_t index, const T* dy);
  LogitsBatch log_softmax(int batch);

  const Context& context_;
  Network network_;
  FlatArrays arrays_;
  std::size_t parameter_size_;
  std::vector<Block> blocks_;
  LinearShape linear_;  // its batch is set at each use
  std::size_t linear_weights_, linear_bias_;
  std::map<int, Plan> plans_;  // by batch size

  DeviceArray<T> input_;
  DeviceArray<std::int32_t> labels_;
  DeviceArray<float> logits_;
  DeviceArray<float> log_softmax_;  // of Kernels::kCudnn
  DeviceArray<T> dlogits_;
  DeviceArray<T> cast_parameters_;  // where T is not float, like the following
  DeviceArray<T> cast_gradient_;    // of one block's weights
};

}  // namespace convnet::cuda
