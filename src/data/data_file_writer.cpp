#include "data/data_file_writer.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/write_file.hpp"
#include "data/hdf5_file.hpp"

namespace convnet {
namespace {

constexpr hsize_t kChunkBytes = 1 << 20;
constexpr int kFormatVersion = 1;

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

}  // namespace

void write_data_file(const std::filesystem::path& path, const Dataset& dataset) {
  const Hdf5File file = create_hdf5_in_memory(path);
  write_attribute(file, "format", "convnet-dataset");
  write_attribute(file, "version", kFormatVersion);
  write_attribute(file, "classes", dataset.info.classes);
  write_attribute(file, "name", dataset.info.name);
  write_attribute(file, "transposed", dataset.info.transposed ? 1 : 0);
  write_attribute(file, "source", spell_sources(dataset.info.sources));
  write_split(file, "train", dataset.info, dataset.train);
  write_split(file, "test", dataset.info, dataset.test);
  write_file_atomically(path, hdf5_image(file));
}

}  // namespace convnet
