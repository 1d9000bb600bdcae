#include <cuda_bf16.h>

#include "compute/cuda/device_code.cuh"
#include "compute/cuda/launch.hpp"
#include "compute/cuda/softmax_cross_entropy.hpp"

namespace convnet::cuda {
namespace {

constexpr int kWarps = 16;  // of the one block: each takes one sample after the other

// What a warp learns of one sample. Valid on all lanes.
struct SampleLoss {
  float maximum;
  float total;  // of the exponentials over that of the maximum
  float loss;
  bool is_correct;
};

__device__ SampleLoss sample_loss(const LogitsBatch& batch, int n) {
  const float* logits = batch.logits + static_cast<std::int64_t>(n) * batch.classes;
  const int classes = batch.classes;
  const int label = batch.labels[n];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float maximum = -INFINITY;
  int winner = classes;
  for (int k = lane; k < classes; k += kWarpSize) {
    if (logits[k] > maximum || winner == classes) {
      maximum = logits[k];
      winner = k;
    }
  }
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, maximum, distance);
    const int other_winner = __shfl_xor_sync(kAllLanes, winner, distance);
    if (other > maximum || (other == maximum && other_winner < winner)) {
      maximum = other;
      winner = other_winner;
    }
  }
  if (batch.is_log_softmax) {
    return {0.0F, 1.0F, -logits[label], winner == label};
  }
  // Taken off every logit, so that no exponential overflows. A NaN comes through the total.
  float total = 0.0F;
  for (int k = lane; k < classes; k += kWarpSize) {
    total += expf(logits[k] - maximum);
  }
  total = warp_sum(total);
  return {maximum, total, logf(total) + (maximum - logits[label]), winner == label};
}

struct BlockSums {
  double loss;
  int correct;
};

// Adds up what lane 0 of each warp has, warp by warp; the result is valid on thread 0.
__device__ BlockSums block_sums(double loss, int correct) {
  __shared__ double losses[kWarps];
  __shared__ int corrects[kWarps];
  if (threadIdx.x % kWarpSize == 0) {
    losses[threadIdx.x / kWarpSize] = loss;
    corrects[threadIdx.x / kWarpSize] = correct;
  }
  __syncthreads();
  BlockSums sums{0.0, 0};
  if (threadIdx.x == 0) {
    for (int warp = 0; warp < kWarps; ++warp) {
      sums.loss += losses[warp];
      sums.correct += corrects[warp];
    }
  }
  return sums;
}

template <class T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    softmax_cross_entropy_kernel(LogitsBatch batch, const StepRecord* record, T* dlogits, float* tail,
                                 Score* score) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  double loss = 0.0;
  int correct = 0;
  for (int n = static_cast<int>(threadIdx.x) / kWarpSize; n < batch.batch; n += kWarps) {
    const std::int64_t first = static_cast<std::int64_t>(n) * batch.classes;
    const float* logits = batch.logits + first;
    const int label = batch.labels[n];
    const SampleLoss sample = sample_loss(batch, n);
    loss += sample.loss;
    correct += sample.is_correct ? 1 : 0;
    for (int k = lane; k < batch.classes; k += kWarpSize) {
      const float probability = expf(logits[k] - sample.maximum) / sample.total;
      dlogits[first + k] = from_float<T>(record->gradient_scale * (probability - (k == label ? 1.0F : 0.0F)));
    }
  }
  const BlockSums sums = block_sums(loss, correct);
  if (threadIdx.x == 0) {
    score->local_loss_sum = sums.loss;
    tail[0] = static_cast<float>(sums.loss);
    tail[1] = static_cast<float>(sums.correct);
  }
}

__global__ void __launch_bounds__(kWarps* kWarpSize) evaluate_logits_kernel(LogitsBatch batch, Score* score) {
  double loss = 0.0;
  int correct = 0;
  for (int n = static_cast<int>(threadIdx.x) / kWarpSize; n < batch.batch; n += kWarps) {
    const SampleLoss sample = sample_loss(batch, n);
    loss += sample.loss;
    correct += sample.is_correct ? 1 : 0;
  }
  const BlockSums sums = block_sums(loss, correct);
  if (threadIdx.x == 0) {
    score->test_loss_sum += sums.loss;
    score->test_correct += sums.correct;
  }
}

}  // namespace

template <class T>
void softmax_cross_entropy(cudaStream_t stream, const LogitsBatch& batch, const StepRecord* record,
                           T* dlogits, float* tail, Score* score) {
  launch(softmax_cross_entropy_kernel<T>, 1, kWarps * kWarpSize, stream, batch, record, dlogits, tail, score);
}

void evaluate_logits(cudaStream_t stream, const LogitsBatch& batch, Score* score) {
  launch(evaluate_logits_kernel, 1, kWarps * kWarpSize, stream, batch, score);
}

template void softmax_cross_entropy(cudaStream_t, const LogitsBatch&, const StepRecord*, float*, float*,
                                    Score*);
template void softmax_cross_entropy(cudaStream_t, const LogitsBatch&, const StepRecord*, __nv_bfloat16*,
                                    float*, Score*);

}  // namespace convnet::cuda
