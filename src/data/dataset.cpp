#include "convnet/dataset.hpp"

#include <fmt/format.h>

#include "convnet/error.hpp"

namespace convnet {
namespace {

// Where the parts begin, in bytes. The labels come first, so that they are aligned whatever the size of an
// image.
struct Offsets {
  std::size_t train_labels = 0;
  std::size_t test_labels = 0;
  std::size_t train_images = 0;
  std::size_t test_images = 0;
  std::size_t end = 0;
};

Offsets offsets_of(const DataFileInfo& info, RowRange train, RowRange test) {
  const auto label_bytes = [](RowRange range) {
    return static_cast<std::size_t>(range.count) * sizeof(std::int32_t);
  };
  const auto image_bytes = [&info](RowRange range) {
    return static_cast<std::size_t>(range.count * info.shape.size());
  };
  Offsets offsets;
  offsets.test_labels = label_bytes(train);
  offsets.train_images = offsets.test_labels + label_bytes(test);
  offsets.test_images = offsets.train_images + image_bytes(train);
  offsets.end = offsets.test_images + image_bytes(test);
  return offsets;
}

struct SplitMemory {
  std::span<std::int32_t> labels;
  std::span<std::uint8_t> images;
};

struct DatasetMemory {
  SplitMemory train;
  SplitMemory test;
};

DatasetMemory lay_out(const DataFileInfo& info, RowRange train, RowRange test, std::span<std::byte> memory) {
  const Offsets offsets = offsets_of(info, train, test);
  if (memory.size() < offsets.end) {
    throw Error(ExitCode::kInternal,
                fmt::format("the memory for the data set has {} bytes: expected at least {}", memory.size(),
                            offsets.end));
  }
  const auto part = [&](RowRange range, std::size_t labels, std::size_t images) {
    return SplitMemory{
        {reinterpret_cast<std::int32_t*>(memory.data() + labels), static_cast<std::size_t>(range.count)},
        {reinterpret_cast<std::uint8_t*>(memory.data() + images),
         static_cast<std::size_t>(range.count * info.shape.size())}};
  };
  return {part(train, offsets.train_labels, offsets.train_images),
          part(test, offsets.test_labels, offsets.test_images)};
}

}  // namespace

std::size_t bytes_for(const DataFileInfo& info, RowRange train, RowRange test) {
  return offsets_of(info, train, test).end;
}

Dataset view_dataset(const DataFileInfo& info, RowRange train, RowRange test, std::span<std::byte> memory) {
  const DatasetMemory parts = lay_out(info, train, test, memory);
  return {info,
          {train, parts.train.images, parts.train.labels},
          {test, parts.test.images, parts.test.labels},
          nullptr};
}

void load_into(const DataFile& file, RowRange train, RowRange test, std::span<std::byte> memory) {
  const DatasetMemory parts = lay_out(file.info(), train, test, memory);
  file.read_labels(Split::kTrain, train.first, parts.train.labels);
  file.read_labels(Split::kTest, test.first, parts.test.labels);
  file.read_images(Split::kTrain, train.first, train.count, parts.train.images);
  file.read_images(Split::kTest, test.first, test.count, parts.test.images);
}

}  // namespace convnet
