#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "compute/cuda/step_record.hpp"

namespace convnet::cuda {

// A batch's logits, batch x classes, and their labels, in device memory.
struct LogitsBatch {
  const float* logits = nullptr;
  const std::int32_t* labels = nullptr;
  int batch = 0;
  int classes = 0;
  bool is_log_softmax = false;  // the values are logarithms of probabilities already
};

// Softmax cross-entropy (PyTorch's CrossEntropyLoss, summed). Writes the loss sum, in double to
// score->local_loss_sum and in float to tail[0], the number of right predictions (the first of equal logits
// counts) to tail[1], and dlogits = record->gradient_scale (softmax - one hot). T is float or __nv_bfloat16.
template <class T>
void softmax_cross_entropy(cudaStream_t stream, const LogitsBatch& batch, const StepRecord* record,
                           T* dlogits, float* tail, Score* score);

// Adds the loss sum and the right predictions of a batch to those of the evaluation.
void evaluate_logits(cudaStream_t stream, const LogitsBatch& batch, Score* score);

}  // namespace convnet::cuda
