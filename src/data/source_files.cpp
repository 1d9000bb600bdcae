#include "data/source_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <regex>
#include <string_view>
#include <vector>

#include "convnet/error.hpp"
#include "data/idx.hpp"

namespace convnet {
namespace {

struct KnownDataSet {
  std::string_view name;
  std::array<std::string_view, 4> sha256;  // of the uncompressed files, in the order of SourcePaths
};

constexpr std::array kKnownDataSets{
    KnownDataSet{"MNIST",
                 {"ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                  "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                  "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                  "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}},
    KnownDataSet{"Fashion-MNIST",
                 {"c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                  "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                  "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                  "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"}},
};

struct SourcePattern {
  const char* role;
  const char* names;  // a regular expression
  const char* example;
};

constexpr std::array<SourcePattern, 4> kSourcePatterns{{
    {"training images", "(emnist-.+-)?train-images[-.]idx[34]-ubyte(\\.gz)?", "train-images-idx3-ubyte"},
    {"training labels", "(emnist-.+-)?train-labels[-.]idx1-ubyte(\\.gz)?", "train-labels-idx1-ubyte"},
    {"test images", "(emnist-.+-)?(t10k|test)-images[-.]idx[34]-ubyte(\\.gz)?", "t10k-images-idx3-ubyte"},
    {"test labels", "(emnist-.+-)?(t10k|test)-labels[-.]idx1-ubyte(\\.gz)?", "t10k-labels-idx1-ubyte"},
}};

std::vector<std::filesystem::path> list_files(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    files.push_back(entry.path());
  }
  if (error) {
    throw Error(ExitCode::kIo,
                fmt::format("{}: cannot list the folder: {}", folder.string(), error.message()));
  }
  std::ranges::sort(files);
  return files;
}

std::filesystem::path find_source_file(const std::filesystem::path& folder, const SourcePattern& pattern) {
  const std::regex names(pattern.names);
  std::vector<std::filesystem::path> matches;
  std::vector<std::string> matching_names;
  for (const std::filesystem::path& file : list_files(folder)) {
    if (std::regex_match(file.filename().string(), names)) {
      matches.push_back(file);
      matching_names.push_back(file.filename().string());
    }
  }
  if (matches.empty()) {
    throw Error(ExitCode::kIo,
                fmt::format("{}: found no file of {}, expected one named like {}, with or without .gz",
                            folder.string(), pattern.role, pattern.example));
  }
  if (matches.size() > 1) {
    throw Error(
        ExitCode::kUsage,
        fmt::format("{}: found several files of {} ({}), expected one: leave one there, or name all four "
                    "files with --train-images, --train-labels, --test-images and --test-labels",
                    folder.string(), pattern.role, fmt::join(matching_names, ", ")));
  }
  return matches.front();
}

// One split, in the memory that the data set's views look at.
struct LoadedSplit {
  ImageShape shape;
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;

  SplitView view() const { return {{0, static_cast<std::int64_t>(labels.size())}, images, labels}; }
};

// Swaps rows and columns of each of the planes of height x width in `images`.
std::vector<std::uint8_t> transposed(const std::vector<std::uint8_t>& images, const ImageShape& shape) {
  const auto height = static_cast<std::size_t>(shape.height);
  const auto width = static_cast<std::size_t>(shape.width);
  std::vector<std::uint8_t> result(images.size());
  for (std::size_t plane = 0; plane < images.size(); plane += height * width) {
    for (std::size_t row = 0; row < height; ++row) {
      for (std::size_t column = 0; column < width; ++column) {
        result[plane + column * height + row] = images[plane + row * width + column];
      }
    }
  }
  return result;
}

LoadedSplit read_split(const std::filesystem::path& images_path, const std::filesystem::path& labels_path,
                       bool transpose, const SourceProgress& progress, std::vector<SourceFile>& sources) {
  const auto read = [&](const std::filesystem::path& path, IdxKind kind) {
    Idx idx = read_idx(path, kind, [&](double fraction) { progress(path, fraction); });
    sources.push_back({path.filename().string(), idx.sha256});
    return idx;
  };
  Idx images = read(images_path, IdxKind::kImages);
  const Idx labels = read(labels_path, IdxKind::kLabels);
  if (labels.dimensions[0] != images.dimensions[0]) {
    throw Error(ExitCode::kData, fmt::format("{}: found {} labels, expected {}, one for each image in {}",
                                             labels_path.string(), labels.dimensions[0], images.dimensions[0],
                                             images_path.string()));
  }
  if (images.dimensions.size() == 3) {
    images.dimensions.insert(images.dimensions.begin() + 1, 1);
  }
  ImageShape shape{static_cast<int>(images.dimensions[1]), static_cast<int>(images.dimensions[2]),
                   static_cast<int>(images.dimensions[3])};
  if (transpose) {
    images.values = transposed(images.values, shape);
    std::swap(shape.height, shape.width);
  }
  return {shape, std::move(images.values), {labels.values.begin(), labels.values.end()}};
}

void require_below(int classes, const std::vector<std::int32_t>& labels, const std::filesystem::path& path) {
  const auto bad = std::ranges::find_if(labels, [&](std::int32_t label) { return label >= classes; });
  if (bad != labels.end()) {
    throw Error(ExitCode::kData,
                fmt::format("{}: found label {} at index {}, expected labels below {}, the number of classes",
                            path.string(), *bad, bad - labels.begin(), classes));
  }
}

}  // namespace

SourcePaths find_source_files(const std::filesystem::path& folder) {
  SourcePaths paths;
  std::ranges::transform(kSourcePatterns, paths.begin(),
                         [&](const SourcePattern& pattern) { return find_source_file(folder, pattern); });
  return paths;
}

Dataset read_source_files(const SourcePaths& paths, const SourceOptions& options,
                          const SourceProgress& progress) {
  const auto& [train_images, train_labels, test_images, test_labels] = paths;
  Dataset dataset;
  DataFileInfo& info = dataset.info;
  auto splits = std::make_shared<std::array<LoadedSplit, 2>>();
  auto& [train, test] = *splits;
  train = read_split(train_images, train_labels, options.transpose, progress, info.sources);
  test = read_split(test_images, test_labels, options.transpose, progress, info.sources);
  if (test.shape != train.shape) {
    throw Error(ExitCode::kData,
                fmt::format("{}: found images of {}, expected {} as in {}", test_images.string(),
                            to_string(test.shape), to_string(train.shape), train_images.string()));
  }
  const int largest_label = std::max(std::ranges::max(train.labels), std::ranges::max(test.labels));
  info.shape = train.shape;
  info.classes = options.classes.value_or(largest_label + 1);
  require_below(info.classes, train.labels, train_labels);
  require_below(info.classes, test.labels, test_labels);
  dataset.train = train.view();
  dataset.test = test.view();
  info.train_count = dataset.train.range.count;
  info.test_count = dataset.test.range.count;
  info.name = known_name(info.sources);
  info.transposed = options.transpose;
  dataset.memory = splits;
  return dataset;
}

std::string known_name(std::span<const SourceFile> sources) {
  for (const KnownDataSet& known : kKnownDataSets) {
    if (std::ranges::equal(sources, known.sha256, {}, &SourceFile::sha256)) {
      return std::string(known.name);
    }
  }
  return "unknown";
}

}  // namespace convnet
