#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "compute/judge.hpp"
#include "compute/random_values.hpp"
#include "convnet/dataset.hpp"
#include "convnet/model_state.hpp"
#include "convnet/network.hpp"

namespace convnet {

// A data set of random images and labels. As MNIST's, the images have black borders, a quarter of the image
// wide, where pooling windows hold equal values.
inline Dataset synthetic_dataset(const Network& network, std::int64_t train_count, std::int64_t test_count,
                                 std::uint64_t seed) {
  const DataFileInfo info{.shape = network.input,
                          .classes = network.classes,
                          .train_count = train_count,
                          .test_count = test_count,
                          .name = "synthetic",
                          .sources = {}};
  struct Memory {
    std::vector<std::uint8_t> images;
    std::vector<std::int32_t> labels;
  };
  const auto memory = std::make_shared<Memory>();
  const std::int64_t count = train_count + test_count;
  const ImageShape& shape = network.input;
  for (const float value : random_values(count * shape.size(), 0.0F, 256.0F, seed)) {
    const auto pixel = static_cast<std::int64_t>(memory->images.size());
    const std::int64_t row = pixel / shape.width % shape.height;
    const std::int64_t column = pixel % shape.width;
    const bool is_border = row < shape.height / 4 || row >= shape.height - shape.height / 4 ||
                           column < shape.width / 4 || column >= shape.width - shape.width / 4;
    memory->images.push_back(is_border ? std::uint8_t{0} : static_cast<std::uint8_t>(value));
  }
  for (const float value : random_values(count, 0.0F, static_cast<float>(network.classes), seed + 1)) {
    memory->labels.push_back(static_cast<std::int32_t>(value));
  }
  const std::span images(memory->images);
  const std::span labels(memory->labels);
  const auto test_images = static_cast<std::size_t>(train_count * network.input.size());
  const auto test_labels = static_cast<std::size_t>(train_count);
  return {info,
          {{0, train_count}, images.first(test_images), labels.first(test_labels)},
          {{0, test_count}, images.subspan(test_images), labels.subspan(test_labels)},
          memory};
}

// A state in which every tensor matters: random weights, scales of both signs, shifts and statistics.
inline ModelState random_state(const Network& network, std::uint64_t seed) {
  ModelState state = initial_state(network, seed);
  const StateLayout layout(network);
  for (const TensorInfo& tensor : layout.tensors()) {
    if (tensor.name.find(".1.") == std::string::npos) {
      continue;
    }
    const bool is_positive = tensor.name.ends_with("running_var");
    auto& all = tensor.is_parameter ? state.parameters : state.buffers;
    const auto values = random_values(tensor.size(), is_positive ? 0.5F : -1.0F, 1.5F, ++seed);
    std::ranges::copy(values, all.begin() + tensor.offset);
  }
  return state;
}

// Rows of a split as a batch, in [0, 1].
inline judge::Images batch_of(const SplitView& split, const ImageShape& shape,
                              std::span<const std::int32_t> rows) {
  judge::Images batch(static_cast<int>(rows.size()), shape);
  const auto size = static_cast<std::size_t>(shape.size());
  for (std::size_t i = 0; i < batch.values.size(); ++i) {
    batch.values[i] = split.images[static_cast<std::size_t>(rows[i / size]) * size + i % size] / 255.0;
  }
  return batch;
}

inline std::vector<std::int32_t> labels_of(const SplitView& split, std::span<const std::int32_t> rows) {
  std::vector<std::int32_t> labels;
  for (const std::int32_t row : rows) {
    labels.push_back(split.labels[static_cast<std::size_t>(row)]);
  }
  return labels;
}

// The first of random_state(network, 1), (network, 2), ... with which a step over these rows takes no
// decision (maximum of a window, ReLU) by less than `margin`, so that rounding cannot turn it.
inline ModelState clear_state(const Network& network, const Dataset& dataset,
                              std::span<const std::int32_t> rows, double margin) {
  constexpr std::uint64_t kTries = 100;
  for (std::uint64_t seed = 1; seed <= kTries; ++seed) {
    const ModelState state = random_state(network, seed);
    judge::State tried(state);
    const auto batch = batch_of(dataset.train, network.input, rows);
    if (forward_backward(network, tried, batch, labels_of(dataset.train, rows), 1.0).margin >= margin) {
      return state;
    }
  }
  throw std::runtime_error("no state decides clearly enough");
}

}  // namespace convnet
