#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "convnet/data_file.hpp"

namespace convnet {

// The rows first .. first + count - 1 of a split that a data set in memory holds.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;

  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// The images of one split that are in memory. A row number used with it counts from 0 at range.first.
struct SplitView {
  RowRange range;
  std::span<const std::uint8_t> images;  // range.count x shape.size(), each image as channel, row, column
  std::span<const std::int32_t> labels;  // range.count
};

// A data set in memory: views, and whatever keeps the memory behind them alive (the heap, or a window that
// all ranks of a node share).
struct Dataset {
  DataFileInfo info;
  SplitView train;
  SplitView test;
  std::shared_ptr<void> memory;
};

// The bytes that load_into needs for these ranges.
std::size_t bytes_for(const DataFileInfo& info, RowRange train, RowRange test);

// Lays out views of the ranges in `memory` (bytes_for bytes, aligned to 4), without touching it.
Dataset view_dataset(const DataFileInfo& info, RowRange train, RowRange test, std::span<std::byte> memory);

// Reads the ranges from the file into `memory`, laid out as view_dataset lays it out.
void load_into(const DataFile& file, RowRange train, RowRange test, std::span<std::byte> memory);

}  // namespace convnet
