#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "compute/cuda/step_record.hpp"

// Kernels over flat arrays: of parameters, gradients, and what goes with them.

namespace convnet::cuda {

// Whether the kernels can run on this process's GPU: what CUDA says of one of them.
cudaError_t probe_code();

// *record = value, without a buffer of the host's that would have to live on.
void set_record(cudaStream_t stream, StepRecord* record, const StepRecord& value);

// Likewise records[i] = values[i], at most kMostStepsPerLaunch.
void set_records(cudaStream_t stream, StepRecord* records, std::span<const StepRecord> values);

void convert(cudaStream_t stream, const float* from, std::int64_t count, __nv_bfloat16* to);
void convert(cudaStream_t stream, const __nv_bfloat16* from, std::int64_t count, float* to);

// Writes score->is_finite = 0 if any of the values is not finite.
void check_finite(cudaStream_t stream, const float* values, std::int64_t count, Score* score);

// A step that is to change nothing if it is not finite: at its beginning the running statistics are put by
// and score->is_finite = 1; at its end they are put back where score->is_finite is 0.
void begin_skippable(cudaStream_t stream, const float* buffers, std::int64_t count, float* before,
                     Score* score);
void end_skippable(cudaStream_t stream, const float* before, std::int64_t count, float* buffers,
                   const Score* score);

// Optimiser's arrays, `count` long each. What a rule does not keep is null.
struct UpdateArrays {
  std::int64_t count = 0;
  const float* gradients = nullptr;
  float* parameters = nullptr;
  float* first_moment = nullptr;   // SGD: velocity
  float* second_moment = nullptr;  // AdamW alone
};

// Writes score->clip_factor, by which the updates below multiply the gradient where record->update.clip_norm
// is above 0.
void set_clip_factor(cudaStream_t stream, const float* gradients, std::int64_t count,
                     const StepRecord* record, Score* score);

// One update as apply_update of UpdateRule's formulas, by record->update, and one more of score->steps;
// nothing at all where score->is_finite is 0.
void apply_sgd(cudaStream_t stream, const UpdateArrays& arrays, bool nesterov, const StepRecord* record,
               Score* score);
void apply_adamw(cudaStream_t stream, const UpdateArrays& arrays, const StepRecord* record, Score* score);

}  // namespace convnet::cuda
