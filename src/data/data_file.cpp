#include "convnet/data_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <source_location>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/read_file.hpp"
#include "convnet/error.hpp"
#include "data/hdf5_file.hpp"

namespace convnet {
namespace {

constexpr const char* kFormat = "convnet-dataset";
constexpr std::int64_t kVersion = 1;

struct OpenSplit {
  std::string name;  // "/train" or "/test"
  Hdf5DataSet images;
  Hdf5DataSet labels;
  ImageShape shape;
  std::int64_t count = 0;
};

[[noreturn]] void fail(const std::string& what, const std::string& found, const std::string& expected,
                       std::source_location where = std::source_location::current()) {
  throw Error(ExitCode::kData, fmt::format("{}: found {}, expected {}", what, found, expected), where);
}

NamedHdf5File open_file(const std::string& path) {
  open_to_read(path);  // HDF5 tells badly why a file cannot be opened; the operating system tells it well
  silence_hdf5();
  if (H5Fis_hdf5(path.c_str()) == 0) {
    fail(path, "no HDF5 file (it has no HDF5 signature)", "a data file as \"convnet convert\" writes it");
  }
  const std::string what = path + ": expected an intact HDF5 file, found";
  const Hdf5Properties access(check_hdf5(H5Pcreate(H5P_FILE_ACCESS), what));
  check_hdf5(H5Pset_file_locking(access.get(), false, true), what);
  return {path, Hdf5File(check_hdf5(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), what))};
}

// The attribute `source`: lines of a sum, two spaces and a name.
std::vector<SourceFile> read_sources(const NamedHdf5File& file) {
  std::vector<SourceFile> sources;
  std::istringstream lines(read_text(file, "source").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t sum_end = line.find("  ");
    if (sum_end == std::string::npos) {
      fail(file.path, fmt::format(R"("{}" in the attribute "source")", line),
           "a SHA-256 sum, two spaces and a name");
    }
    sources.push_back({line.substr(sum_end + 2), line.substr(0, sum_end)});
  }
  return sources;
}

DataFileInfo read_attributes(const NamedHdf5File& file) {
  const std::string format = read_text(file, "format").value_or("");
  if (format != kFormat) {
    fail(file.path, format.empty() ? "no attribute \"format\"" : fmt::format("the format \"{}\"", format),
         fmt::format(R"(the attribute "format" to be "{}")", kFormat));
  }
  const std::optional<std::int64_t> version = read_integer(file, "version");
  if (version != kVersion) {
    fail(file.path, version ? fmt::format("format version {}", *version) : "no attribute \"version\"",
         fmt::format("version {}{}", kVersion, version > kVersion ? ": a newer convnet made this file" : ""));
  }
  const std::int64_t classes = read_integer(file, "classes").value_or(0);
  if (classes < 1 || classes > std::numeric_limits<std::int32_t>::max()) {
    fail(file.path, fmt::format("{} classes", classes), "the attribute \"classes\" to be at least 1");
  }
  DataFileInfo info;
  info.classes = static_cast<int>(classes);
  info.name = read_text(file, "name").value_or("unknown");
  info.transposed = read_integer(file, "transposed").value_or(0) != 0;
  info.sources = read_sources(file);
  return info;
}

// --- Data sets ---

std::vector<hsize_t> dimensions_of(const Hdf5DataSet& set, const std::string& what) {
  const Hdf5Space space(check_hdf5(H5Dget_space(set.get()), what));
  std::vector<hsize_t> dimensions(
      static_cast<std::size_t>(check_hdf5(H5Sget_simple_extent_ndims(space.get()), what)));
  check_hdf5(H5Sget_simple_extent_dims(space.get(), dimensions.data(), nullptr), what);
  return dimensions;
}

// "uint8", "int64", "float64", ...
std::string type_of(const Hdf5DataSet& set, const std::string& what) {
  const Hdf5Type type(check_hdf5(H5Dget_type(set.get()), what));
  const std::size_t bits = 8 * H5Tget_size(type.get());
  switch (H5Tget_class(type.get())) {
    case H5T_INTEGER:
      return fmt::format("{}int{}", H5Tget_sign(type.get()) == H5T_SGN_NONE ? "u" : "", bits);
    case H5T_FLOAT:
      return fmt::format("float{}", bits);
    default:
      return "values that are no numbers";
  }
}

// "float64 [60000, 784]"
std::string spell(const std::string& type, const std::vector<hsize_t>& dimensions) {
  return fmt::format("{} [{}]", type, fmt::join(dimensions, ", "));
}

Hdf5DataSet open_data_set(const NamedHdf5File& file, const std::string& name, const std::string& expected) {
  return Hdf5DataSet(
      check_hdf5(H5Dopen2(file.handle.get(), name.c_str(), H5P_DEFAULT),
                 fmt::format("{}: cannot open {}, expected {}, found", file.path, name, expected)));
}

// Whether each dimension is at least 1 and fits an int, and their product is a size that can be.
bool is_possible_size(const std::vector<hsize_t>& dimensions) {
  constexpr hsize_t kLargestSize = hsize_t{1} << 48;
  hsize_t size = 1;
  return std::ranges::all_of(dimensions, [&](hsize_t dimension) {
    const bool fits = dimension >= 1 && dimension < (hsize_t{1} << 31) && dimension <= kLargestSize / size;
    size *= dimension;
    return fits;
  });
}

OpenSplit open_split(const NamedHdf5File& file, const std::string& name) {
  OpenSplit split;
  split.name = name;
  const std::string image_type = "uint8 [N, C, H, W] or [N, H, W]";
  split.images = open_data_set(file, name + "/images", image_type);
  const std::string where = file.path + ": " + name;
  std::vector<hsize_t> dimensions = dimensions_of(split.images, where);
  const std::string type = type_of(split.images, where);
  if (type != "uint8" || (dimensions.size() != 3 && dimensions.size() != 4) ||
      !is_possible_size(dimensions)) {
    fail(where + "/images", spell(type, dimensions), image_type + ", each dimension at least 1");
  }
  if (dimensions.size() == 3) {
    dimensions.insert(dimensions.begin() + 1, 1);
  }
  split.count = static_cast<std::int64_t>(dimensions[0]);
  split.shape = {static_cast<int>(dimensions[1]), static_cast<int>(dimensions[2]),
                 static_cast<int>(dimensions[3])};

  const std::string expected = fmt::format("uint8 or int64 [{}], a label for each image", split.count);
  split.labels = open_data_set(file, name + "/labels", expected);
  const std::vector<hsize_t> label_dimensions = dimensions_of(split.labels, where);
  const std::string label_type = type_of(split.labels, where);
  if ((label_type != "uint8" && label_type != "int64") || label_dimensions != std::vector{dimensions[0]}) {
    fail(where + "/labels", spell(label_type, label_dimensions), expected);
  }
  return split;
}

// Reads rows of a data set, a row being all but the first dimension.
void read_rows(const Hdf5DataSet& set, std::int64_t first, std::int64_t count, hid_t memory_type,
               void* values, const std::string& what) {
  std::vector<hsize_t> extent = dimensions_of(set, what);
  std::vector<hsize_t> start(extent.size(), 0);
  start[0] = static_cast<hsize_t>(first);
  extent[0] = static_cast<hsize_t>(count);
  const Hdf5Space in_file(check_hdf5(H5Dget_space(set.get()), what));
  check_hdf5(
      H5Sselect_hyperslab(in_file.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr),
      what);
  const Hdf5Space in_memory(
      check_hdf5(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), what));
  check_hdf5(H5Dread(set.get(), memory_type, in_memory.get(), in_file.get(), H5P_DEFAULT, values), what);
}

}  // namespace

struct DataFile::Contents {
  NamedHdf5File file;
  DataFileInfo info;
  OpenSplit train;
  OpenSplit test;

  const OpenSplit& split(Split which) const { return which == Split::kTrain ? train : test; }
};

DataFile::DataFile(const std::filesystem::path& path) {
  NamedHdf5File file = open_file(path);
  DataFileInfo info = read_attributes(file);
  OpenSplit train = open_split(file, "/train");
  OpenSplit test = open_split(file, "/test");
  if (test.shape != train.shape) {
    fail(file.path + ": /test/images", "images of " + to_string(test.shape),
         to_string(train.shape) + " as in /train/images");
  }
  info.shape = train.shape;
  info.train_count = train.count;
  info.test_count = test.count;
  contents_ = std::make_unique<Contents>(
      Contents{std::move(file), std::move(info), std::move(train), std::move(test)});
}

DataFile::~DataFile() = default;
DataFile::DataFile(DataFile&&) noexcept = default;
DataFile& DataFile::operator=(DataFile&&) noexcept = default;

const DataFileInfo& DataFile::info() const {
  return contents_->info;
}

void DataFile::read_images(Split split, std::int64_t first, std::int64_t count,
                           std::span<std::uint8_t> images) const {
  const OpenSplit& from = contents_->split(split);
  if (count * from.shape.size() != static_cast<std::int64_t>(images.size())) {
    throw Error(ExitCode::kInternal, fmt::format("read_images: found room for {} bytes, expected {}",
                                                 images.size(), count * from.shape.size()));
  }
  if (count > 0) {
    read_rows(from.images, first, count, H5T_NATIVE_UINT8, images.data(),
              fmt::format("{}: cannot read {}/images", contents_->file.path, from.name));
  }
}

void DataFile::read_labels(Split split, std::int64_t first, std::span<std::int32_t> labels) const {
  if (labels.empty()) {
    return;
  }
  const OpenSplit& from = contents_->split(split);
  const std::string& path = contents_->file.path;
  std::vector<std::int64_t> values(labels.size());
  read_rows(from.labels, first, static_cast<std::int64_t>(values.size()), H5T_NATIVE_INT64, values.data(),
            fmt::format("{}: cannot read {}/labels", path, from.name));
  const std::int64_t classes = contents_->info.classes;
  const auto bad =
      std::ranges::find_if(values, [&](std::int64_t label) { return label < 0 || label >= classes; });
  if (bad != values.end()) {
    fail(fmt::format("{}: {}/labels", path, from.name),
         fmt::format("label {} at index {}", *bad, first + (bad - values.begin())),
         fmt::format("labels in [0, {})", classes));
  }
  std::ranges::transform(values, labels.begin(),
                         [](std::int64_t label) { return static_cast<std::int32_t>(label); });
}

}  // namespace convnet
