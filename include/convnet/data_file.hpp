#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convnet/network.hpp"

namespace convnet {

enum class Split { kTrain, kTest };

// One source file of a data file.
struct SourceFile {
  std::string name;    // without its folder
  std::string sha256;  // of the uncompressed IDX bytes
};

// What a data file holds, without the images.
struct DataFileInfo {
  ImageShape shape;
  int classes = 0;
  std::int64_t train_count = 0;
  std::int64_t test_count = 0;
  std::string name;  // "MNIST", "Fashion-MNIST" or "unknown"
  bool transposed = false;
  std::vector<SourceFile> sources;

  std::int64_t count(Split split) const { return split == Split::kTrain ? train_count : test_count; }
};

// A data file opened for reading: HDF5 with groups /train and /test, each `images` uint8 [N, C, H, W] (or
// [N, H, W], taken as C = 1) and `labels` uint8 or int64 [N]; root attributes `format` = "convnet-dataset",
// `version` = 1, `classes`; and, which may be missing, `name`, `source` (a line for each source file, as
// sha256sum prints it: SHA-256, two spaces, name) and `transposed` (0 or 1). Opened read-only and without
// file locks, which fail on some network file systems. Every function throws Error naming the file, what was
// found and what was expected: kIo if it cannot be read, kData if it is not a data file or is damaged.
class DataFile {
 public:
  explicit DataFile(const std::filesystem::path& path);
  ~DataFile();
  DataFile(DataFile&&) noexcept;
  DataFile& operator=(DataFile&&) noexcept;
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  const DataFileInfo& info() const;

  // Reads images first .. first + count - 1 of a split; `images` holds count * shape.size() bytes.
  void read_images(Split split, std::int64_t first, std::int64_t count, std::span<std::uint8_t> images) const;
  // Reads as many labels from `first` on as `labels` holds, each checked to lie in [0, classes).
  void read_labels(Split split, std::int64_t first, std::span<std::int32_t> labels) const;

 private:
  struct Contents;
  std::unique_ptr<Contents> contents_;
};

}  // namespace convnet
