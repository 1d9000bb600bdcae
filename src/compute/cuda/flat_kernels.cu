#include <algorithm>

#include "compute/cuda/device_code.cuh"
#include "compute/cuda/flat_kernels.hpp"
#include "compute/cuda/launch.hpp"
#include "compute/cuda_options.hpp"

namespace convnet::cuda {
namespace {

__global__ void set_record_kernel(StepRecord* record, StepRecord value) {
  *record = value;
}

// As a kernel's argument.
struct StepRecords {
  StepRecord values[kMostStepsPerLaunch];
};
static_assert(sizeof(StepRecords) <= 4000, "CUDA has 4096 bytes for all arguments of a kernel");

__global__ void set_records_kernel(StepRecord* records, StepRecords given, int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) {
    records[i] = given.values[i];
  }
}

template <class From, class To>
__global__ void convert_kernel(const From* from, std::int64_t count, To* to) {
  const std::int64_t i = global_index();
  if (i < count) {
    to[i] = from_float<To>(to_float(from[i]));
  }
}

__global__ void check_finite_kernel(const float* values, std::int64_t count, Score* score) {
  const std::int64_t i = global_index();
  if (i < count && !isfinite(values[i])) {
    atomicAnd(&score->is_finite, 0);
  }
}

__global__ void begin_skippable_kernel(const float* buffers, std::int64_t count, float* before,
                                       Score* score) {
  const std::int64_t i = global_index();
  if (i < count) {
    before[i] = buffers[i];
  }
  if (i == 0) {
    score->is_finite = 1;
  }
}

__global__ void end_skippable_kernel(const float* before, std::int64_t count, float* buffers,
                                     const Score* score) {
  const std::int64_t i = global_index();
  if (i < count && score->is_finite == 0) {
    buffers[i] = before[i];
  }
}

constexpr int kClipWarps = 32;  // of the one block, which adds up in one order

__global__ void __launch_bounds__(kClipWarps* kWarpSize)
    clip_kernel(const float* gradients, std::int64_t count, const StepRecord* record, Score* score) {
  __shared__ double squares_of[kClipWarps];
  double squares = 0.0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    squares += static_cast<double>(gradients[i]) * gradients[i];
  }
  squares = warp_sum(squares);
  if (threadIdx.x % kWarpSize == 0) {
    squares_of[threadIdx.x / kWarpSize] = squares;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double total = 0.0;
    for (const double part : squares_of) {
      total += part;
    }
    const double factor = record->update.clip_norm / (sqrt(total) + 1e-6);
    score->clip_factor = factor < 1.0 ? static_cast<float>(factor) : 1.0F;
  }
}

__device__ float clip_factor(const UpdateTerms& terms, const Score* score) {
  return terms.clip_norm > 0.0F ? score->clip_factor : 1.0F;
}

__global__ void sgd_kernel(UpdateArrays arrays, bool nesterov, const StepRecord* record, Score* score) {
  const std::int64_t i = global_index();
  if (i >= arrays.count || score->is_finite == 0) {
    return;
  }
  const UpdateTerms& terms = record->update;
  float direction = clip_factor(terms, score) * arrays.gradients[i] + terms.decay * arrays.parameters[i];
  if (arrays.first_moment != nullptr) {
    // The velocity is 0 before the first step, so that v = momentum 0 + g needs no case of its own.
    const float velocity = terms.momentum * arrays.first_moment[i] + direction;
    arrays.first_moment[i] = velocity;
    direction = nesterov ? direction + terms.momentum * velocity : velocity;
  }
  arrays.parameters[i] -= terms.rate * direction;
  if (i == 0) {
    ++score->steps;
  }
}

__global__ void adamw_kernel(UpdateArrays arrays, const StepRecord* record, Score* score) {
  const std::int64_t i = global_index();
  if (i >= arrays.count || score->is_finite == 0) {
    return;
  }
  const UpdateTerms& terms = record->update;
  const float gradient = clip_factor(terms, score) * arrays.gradients[i];
  const float first = arrays.first_moment[i] + terms.weight1 * (gradient - arrays.first_moment[i]);
  const float second = terms.beta2 * arrays.second_moment[i] + terms.weight2 * gradient * gradient;
  arrays.first_moment[i] = first;
  arrays.second_moment[i] = second;
  const float deviation = sqrtf(second) / terms.correction + terms.epsilon;
  arrays.parameters[i] = arrays.parameters[i] * terms.shrink - terms.rate * first / deviation;
  if (i == 0) {
    ++score->steps;
  }
}

}  // namespace

cudaError_t probe_code() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(check_finite_kernel));
}

void set_record(cudaStream_t stream, StepRecord* record, const StepRecord& value) {
  launch(set_record_kernel, 1, 1, stream, record, value);
}

void set_records(cudaStream_t stream, StepRecord* records, std::span<const StepRecord> values) {
  if (values.size() == 1) {
    set_record(stream, records, values[0]);
    return;
  }
  StepRecords given{};
  std::copy(values.begin(), values.end(), given.values);
  launch(set_records_kernel, 1, kMostStepsPerLaunch, stream, records, given, static_cast<int>(values.size()));
}

void convert(cudaStream_t stream, const float* from, std::int64_t count, __nv_bfloat16* to) {
  launch(convert_kernel<float, __nv_bfloat16>, blocks_for(count), kBlockSize, stream, from, count, to);
}

void convert(cudaStream_t stream, const __nv_bfloat16* from, std::int64_t count, float* to) {
  launch(convert_kernel<__nv_bfloat16, float>, blocks_for(count), kBlockSize, stream, from, count, to);
}

void check_finite(cudaStream_t stream, const float* values, std::int64_t count, Score* score) {
  launch(check_finite_kernel, blocks_for(count), kBlockSize, stream, values, count, score);
}

void begin_skippable(cudaStream_t stream, const float* buffers, std::int64_t count, float* before,
                     Score* score) {
  launch(begin_skippable_kernel, blocks_for(count), kBlockSize, stream, buffers, count, before, score);
}

void end_skippable(cudaStream_t stream, const float* before, std::int64_t count, float* buffers,
                   const Score* score) {
  launch(end_skippable_kernel, blocks_for(count), kBlockSize, stream, before, count, buffers, score);
}

void set_clip_factor(cudaStream_t stream, const float* gradients, std::int64_t count,
                     const StepRecord* record, Score* score) {
  launch(clip_kernel, 1, kClipWarps * kWarpSize, stream, gradients, count, record, score);
}

void apply_sgd(cudaStream_t stream, const UpdateArrays& arrays, bool nesterov, const StepRecord* record,
               Score* score) {
  launch(sgd_kernel, blocks_for(arrays.count), kBlockSize, stream, arrays, nesterov, record, score);
}

void apply_adamw(cudaStream_t stream, const UpdateArrays& arrays, const StepRecord* record, Score* score) {
  launch(adamw_kernel, blocks_for(arrays.count), kBlockSize, stream, arrays, record, score);
}

}  // namespace convnet::cuda
