#include "data/data_file_writer.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/write_file.hpp"
#include "data/hdf5_handle.hpp"

namespace convnet {
namespace {

constexpr hsize_t kChunkBytes = 1 << 20;
constexpr int kFormatVersion = 1;

void write_attribute(const Hdf5File& file, const char* name, hid_t type, const void* value) {
  const std::string what = std::string("cannot make the attribute ") + name;
  const Hdf5Space scalar(check_hdf5(H5Screate(H5S_SCALAR), what));
  const Hdf5Attribute attribute(
      check_hdf5(H5Acreate2(file.get(), name, type, scalar.get(), H5P_DEFAULT, H5P_DEFAULT), what));
  check_hdf5(H5Awrite(attribute.get(), type, value), what);
}

void write_attribute(const Hdf5File& file, const char* name, std::int64_t value) {
  write_attribute(file, name, H5T_NATIVE_INT64, &value);
}

void write_attribute(const Hdf5File& file, const char* name, const std::string& text) {
  const Hdf5Type type(check_hdf5(H5Tcopy(H5T_C_S1), name));
  check_hdf5(H5Tset_size(type.get(), text.size() + 1), name);
  check_hdf5(H5Tset_cset(type.get(), H5T_CSET_UTF8), name);
  write_attribute(file, name, type.get(), text.c_str());
}

// Makes a data set of dimensions[0] rows, in chunks of whole rows.
void write_rows(const Hdf5Group& group, const std::string& name, const std::vector<hsize_t>& dimensions,
                hid_t file_type, hid_t memory_type, const void* values) {
  const std::string what = "cannot make the data set " + name;
  hsize_t row_bytes = H5Tget_size(file_type);
  for (std::size_t i = 1; i < dimensions.size(); ++i) {
    row_bytes *= dimensions[i];
  }
  std::vector<hsize_t> chunk = dimensions;
  chunk[0] = std::clamp<hsize_t>(kChunkBytes / row_bytes, 1, dimensions[0]);

  const auto rank = static_cast<int>(dimensions.size());
  const Hdf5Properties properties(check_hdf5(H5Pcreate(H5P_DATASET_CREATE), what));
  check_hdf5(H5Pset_chunk(properties.get(), rank, chunk.data()), what);
  check_hdf5(H5Pset_fletcher32(properties.get()), what);
  check_hdf5(H5Pset_obj_track_times(properties.get(), false), what);
  const Hdf5Space space(check_hdf5(H5Screate_simple(rank, dimensions.data(), nullptr), what));
  const Hdf5DataSet data_set(check_hdf5(H5Dcreate2(group.get(), name.c_str(), file_type, space.get(),
                                                   H5P_DEFAULT, properties.get(), H5P_DEFAULT),
                                        what));
  check_hdf5(H5Dwrite(data_set.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), what);
}

void write_split(const Hdf5File& file, const std::string& name, const DataFileInfo& info,
                 const SplitView& split) {
  const Hdf5Group group(
      check_hdf5(H5Gcreate2(file.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                 "cannot make the group " + name));
  const auto count = static_cast<hsize_t>(split.range.count);
  const auto& [channels, height, width] = info.shape;
  write_rows(
      group, "images",
      {count, static_cast<hsize_t>(channels), static_cast<hsize_t>(height), static_cast<hsize_t>(width)},
      H5T_STD_U8LE, H5T_NATIVE_UINT8, split.images.data());
  write_rows(group, "labels", {count}, info.classes <= 256 ? H5T_STD_U8LE : H5T_STD_I64LE, H5T_NATIVE_INT32,
             split.labels.data());
}

// A line for each file, as sha256sum prints it.
std::string spell_sources(const std::vector<SourceFile>& sources) {
  std::string text;
  for (const SourceFile& source : sources) {
    text += source.sha256 + "  " + source.name + "\n";
  }
  return text;
}

std::vector<std::byte> file_image(const Hdf5File& file) {
  const std::string what = "cannot make the file's image";
  check_hdf5(H5Fflush(file.get(), H5F_SCOPE_GLOBAL), what);
  const auto size = check_hdf5(H5Fget_file_image(file.get(), nullptr, 0), what);
  std::vector<std::byte> image(static_cast<std::size_t>(size));
  check_hdf5(H5Fget_file_image(file.get(), image.data(), image.size()), what);
  return image;
}

}  // namespace

void write_data_file(const std::filesystem::path& path, const Dataset& dataset) {
  // HDF5 builds the file in memory and never writes to the disk: where a write fails, HDF5 1.10 crashes as
  // the file is closed.
  constexpr std::size_t kMemoryStep = 1 << 26;
  constexpr bool kIsWrittenToDisk = false;
  silence_hdf5();
  const Hdf5Properties in_memory(check_hdf5(H5Pcreate(H5P_FILE_ACCESS), path));
  check_hdf5(H5Pset_fapl_core(in_memory.get(), kMemoryStep, kIsWrittenToDisk), path);
  const Hdf5File file(check_hdf5(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, in_memory.get()), path));
  write_attribute(file, "format", "convnet-dataset");
  write_attribute(file, "version", kFormatVersion);
  write_attribute(file, "classes", dataset.info.classes);
  write_attribute(file, "name", dataset.info.name);
  write_attribute(file, "transposed", dataset.info.transposed ? 1 : 0);
  write_attribute(file, "source", spell_sources(dataset.info.sources));
  write_split(file, "train", dataset.info, dataset.train);
  write_split(file, "test", dataset.info, dataset.test);
  write_file_atomically(path, file_image(file));
}

}  // namespace convnet
