#include "convnet/network.hpp"

#include "convnet/error.hpp"

namespace convnet {

std::string to_string(const ImageShape& shape) {
  return std::to_string(shape.channels) + " x " + std::to_string(shape.height) + " x " +
         std::to_string(shape.width);
}

ImageShape ConvBlock::convolved(const ImageShape& input) const {
  const int growth = 2 * padding - kernel + 1;
  return {out_channels, input.height + growth, input.width + growth};
}

ImageShape ConvBlock::output(const ImageShape& input) const {
  const ImageShape before_pooling = convolved(input);
  return {before_pooling.channels, before_pooling.height / 2, before_pooling.width / 2};
}

ImageShape Network::block_input(std::size_t index) const {
  ImageShape shape = input;
  for (std::size_t i = 0; i < index; ++i) {
    shape = blocks[i].output(shape);
  }
  return shape;
}

Network tutorial_network(const ImageShape& input, int classes) {
  constexpr int kSmallestSide = 4;  // two poolings leave one pixel
  if (input.channels < 1 || input.height < kSmallestSide || input.width < kSmallestSide) {
    throw Error(ExitCode::kData, "images of " + to_string(input) +
                                     " (channels x height x width) do not fit the network: expected at least "
                                     "1 channel and 4 x 4 pixels");
  }
  if (classes < 1) {
    throw Error(ExitCode::kData, "the network needs at least 1 class, not " + std::to_string(classes));
  }
  return {input, {{.out_channels = 16}, {.out_channels = 32}}, classes};
}

}  // namespace convnet
