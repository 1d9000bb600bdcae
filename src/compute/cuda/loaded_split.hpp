#pragma once

#include "compute/cuda/gather.hpp"
#include "compute/cuda/transfer.hpp"
#include "convnet/dataset.hpp"

namespace convnet::cuda {

// A split of the data set, copied to device memory.
struct LoadedSplit {
  LoadedSplit(cudaStream_t stream, const SplitView& split)
      : images(split.images.size()), labels(split.labels.size()) {
    upload(stream, split.images, images.data());
    upload(stream, split.labels, labels.data());
  }
  DeviceSplit view() const { return {images.data(), labels.data()}; }

  DeviceArray<std::uint8_t> images;
  DeviceArray<std::int32_t> labels;
};

}  // namespace convnet::cuda
