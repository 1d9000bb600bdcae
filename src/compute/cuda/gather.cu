#include "compute/cuda/device_code.cuh"
#include "compute/cuda/gather.hpp"
#include "compute/cuda/launch.hpp"

namespace convnet::cuda {
namespace {

template <class T>
__global__ void gather_kernel(DeviceSplit split, const StepRecord* record, std::int64_t size,
                              std::int64_t image_size, T* x, std::int32_t* batch_labels) {
  constexpr float kWhite = 255.0F;
  const std::int64_t i = global_index();
  if (i >= size) {
    return;
  }
  const std::int64_t sample = i / image_size;
  const std::int64_t pixel = i % image_size;
  const std::int64_t row = record->rows[sample];
  x[i] = from_float<T>(static_cast<float>(split.images[row * image_size + pixel]) / kWhite);
  if (pixel == 0) {
    batch_labels[sample] = split.labels[row];
  }
}

}  // namespace

template <class T>
void gather(cudaStream_t stream, const DeviceSplit& split, const StepRecord* record, int batch,
            std::int64_t image_size, T* x, std::int32_t* batch_labels) {
  const std::int64_t size = batch * image_size;
  launch(gather_kernel<T>, blocks_for(size), kBlockSize, stream, split, record, size, image_size, x,
         batch_labels);
}

template void gather(cudaStream_t, const DeviceSplit&, const StepRecord*, int, std::int64_t, float*,
                     std::int32_t*);
template void gather(cudaStream_t, const DeviceSplit&, const StepRecord*, int, std::int64_t, __nv_bfloat16*,
                     std::int32_t*);

}  // namespace convnet::cuda
