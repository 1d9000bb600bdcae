#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "compute/cuda/step_record.hpp"

namespace convnet::cuda {

// A split of the data set in device memory.
struct DeviceSplit {
  const std::uint8_t* images = nullptr;  // channel, row, column
  const std::int32_t* labels = nullptr;
};

// x = the images of the record's rows over 255, batch x image_size; batch_labels = their labels. T is float
// or __nv_bfloat16.
template <class T>
void gather(cudaStream_t stream, const DeviceSplit& split, const StepRecord* record, int batch,
            std::int64_t image_size, T* x, std::int32_t* batch_labels);

}  // namespace convnet::cuda
