#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "convnet/dataset.hpp"

namespace convnet {

// The four IDX files that a data set comes in: train images, train labels, test images, test labels.
using SourcePaths = std::array<std::filesystem::path, 4>;

struct SourceOptions {
  bool transpose = false;      // swap rows and columns of each image, which EMNIST needs to stand upright
  std::optional<int> classes;  // else the largest label + 1
};

// Told, now and then, what part of a file has been read, in [0, 1].
using SourceProgress = std::function<void(const std::filesystem::path& file, double fraction)>;

// Finds the four files in a folder by their names: train-images-idx3-ubyte, train-labels-idx1-ubyte and the
// same with t10k or test, with "." for "-" before idx, after a prefix like "emnist-letters-", ending in .gz,
// or any of these. Throws Error, kIo if the folder cannot be read or has no such file, kUsage if several
// names fit (naming them).
SourcePaths find_source_files(const std::filesystem::path& folder);

// Reads four IDX files into memory. Throws Error as read_idx does; kData also if they do not fit together:
// other counts of labels than of images, test images of another shape than training images, labels beyond the
// classes.
Dataset read_source_files(const SourcePaths& paths, const SourceOptions& options,
                          const SourceProgress& progress);

// The data set that these files are by their sums, "MNIST" or "Fashion-MNIST"; "unknown" unless all four are
// the files that it was published as.
std::string known_name(std::span<const SourceFile> sources);

}  // namespace convnet
