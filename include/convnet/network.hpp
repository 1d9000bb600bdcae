#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convnet {

// The extent of one image or of one layer's output.
struct ImageShape {
  int channels = 1;
  int height = 28;
  int width = 28;

  std::int64_t pixels() const { return std::int64_t{height} * width; }
  std::int64_t size() const { return channels * pixels(); }

  friend bool operator==(const ImageShape&, const ImageShape&) = default;
};

// "1 x 28 x 28"
std::string to_string(const ImageShape& shape);

// Convolution (kernel x kernel, stride 1, zero padding), batch norm, ReLU, max-pool 2 x 2 with stride 2. An
// odd last row or column takes part in the batch norm and is dropped by the pooling.
struct ConvBlock {
  int out_channels = 0;
  int kernel = 5;
  int padding = 2;

  // What the convolution makes of an input, before pooling.
  ImageShape convolved(const ImageShape& input) const;
  // What the whole block makes of an input.
  ImageShape output(const ImageShape& input) const;
};

// The whole network, as data: blocks one after the other, then a linear layer from the flattened (channel,
// row, column) output of the last block to the classes, and softmax cross-entropy.
struct Network {
  ImageShape input;
  std::vector<ConvBlock> blocks;
  int classes = 0;

  // What block `index` takes in; for index = blocks.size(), what the linear layer takes in.
  ImageShape block_input(std::size_t index) const;
};

// The tutorial's network, 1 -> 16 -> 32 channels with 5 x 5 kernels, for images and classes of any number.
// Throws Error (kData) if the images are too small to be pooled twice, or if there is no class.
Network tutorial_network(const ImageShape& input, int classes);

}  // namespace convnet
