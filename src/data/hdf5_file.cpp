#include "data/hdf5_file.hpp"

#include <fmt/format.h>

#include <memory>

namespace convnet {
namespace {

constexpr std::size_t kMemoryStep = 1 << 24;  // by which a file in memory grows
constexpr bool kIsWrittenToDisk = false;

Hdf5Properties in_memory(const std::string& name) {
  silence_hdf5();
  Hdf5Properties properties(check_hdf5(H5Pcreate(H5P_FILE_ACCESS), name));
  check_hdf5(H5Pset_fapl_core(properties.get(), kMemoryStep, kIsWrittenToDisk), name);
  return properties;
}

// The root attribute `name`, of one element of a type of `type_class`; nothing if there is none.
std::optional<Hdf5Attribute> open_attribute(const NamedHdf5File& file, const std::string& name,
                                            H5T_class_t type_class, const std::string& expected) {
  const std::string what = fmt::format("{}: cannot open the attribute \"{}\"", file.path, name);
  if (check_hdf5(H5Aexists(file.handle.get(), name.c_str()), what) == 0) {
    return std::nullopt;
  }
  Hdf5Attribute attribute(check_hdf5(H5Aopen(file.handle.get(), name.c_str(), H5P_DEFAULT), what));
  const Hdf5Type type(check_hdf5(H5Aget_type(attribute.get()), what));
  const Hdf5Space space(check_hdf5(H5Aget_space(attribute.get()), what));
  if (H5Tget_class(type.get()) != type_class || H5Sget_simple_extent_npoints(space.get()) != 1) {
    throw Error(ExitCode::kData, fmt::format("{}: found an attribute \"{}\" of another type, expected {}",
                                             file.path, name, expected));
  }
  return attribute;
}

void write_attribute(const Hdf5File& file, const char* name, hid_t type, const void* value) {
  const std::string what = std::string("cannot make the attribute ") + name;
  const Hdf5Space scalar(check_hdf5(H5Screate(H5S_SCALAR), what));
  const Hdf5Attribute attribute(
      check_hdf5(H5Acreate2(file.get(), name, type, scalar.get(), H5P_DEFAULT, H5P_DEFAULT), what));
  check_hdf5(H5Awrite(attribute.get(), type, value), what);
}

}  // namespace

std::optional<std::int64_t> read_integer(const NamedHdf5File& file, const std::string& name) {
  const auto attribute = open_attribute(file, name, H5T_INTEGER, "one integer");
  if (!attribute) {
    return std::nullopt;
  }
  std::int64_t value = 0;
  check_hdf5(H5Aread(attribute->get(), H5T_NATIVE_INT64, &value),
             fmt::format("{}: cannot read the attribute \"{}\"", file.path, name));
  return value;
}

std::optional<std::string> read_text(const NamedHdf5File& file, const std::string& name) {
  const auto attribute = open_attribute(file, name, H5T_STRING, "one string");
  if (!attribute) {
    return std::nullopt;
  }
  const std::string what = fmt::format("{}: cannot read the attribute \"{}\"", file.path, name);
  const Hdf5Type type(check_hdf5(H5Aget_type(attribute->get()), what));
  if (H5Tis_variable_str(type.get()) > 0) {
    char* text = nullptr;
    check_hdf5(H5Aread(attribute->get(), type.get(), static_cast<void*>(&text)), what);
    const std::unique_ptr<char, herr_t (*)(void*)> owner(text, H5free_memory);
    return text == nullptr ? "" : text;
  }
  std::string text(H5Tget_size(type.get()), '\0');
  check_hdf5(H5Aread(attribute->get(), type.get(), text.data()), what);
  return text.substr(0, text.find('\0'));
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

Hdf5File create_hdf5_in_memory(const std::string& name) {
  const Hdf5Properties access = in_memory(name);
  return Hdf5File(check_hdf5(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), name));
}

std::vector<std::byte> hdf5_image(const Hdf5File& file) {
  const std::string what = "cannot make the file's image";
  check_hdf5(H5Fflush(file.get(), H5F_SCOPE_GLOBAL), what);
  const auto size = check_hdf5(H5Fget_file_image(file.get(), nullptr, 0), what);
  std::vector<std::byte> image(static_cast<std::size_t>(size));
  check_hdf5(H5Fget_file_image(file.get(), image.data(), image.size()), what);
  return image;
}

NamedHdf5File open_hdf5_image(std::span<const std::byte> image, const std::string& name) {
  const Hdf5Properties access = in_memory(name);
  std::vector<std::byte> copy(image.begin(), image.end());  // HDF5 asks for memory that it could change
  check_hdf5(H5Pset_file_image(access.get(), copy.data(), copy.size()), name);
  // Under a name that no file on the disk has: HDF5 refuses an image of a file that is there.
  return {name, Hdf5File(check_hdf5(H5Fopen("/no/such/folder/image", H5F_ACC_RDONLY, access.get()), name))};
}

}  // namespace convnet
