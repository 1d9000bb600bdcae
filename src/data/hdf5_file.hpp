#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/hdf5_handle.hpp"

namespace convnet {

// What data files and checkpoints have in common: they are built in memory, opened under a name, and carry
// attributes at their root. Every function throws Error naming the file: kData if it is not what it should
// be, kIo if it cannot be read.

struct NamedHdf5File {
  std::string path;
  Hdf5File handle;
};

// The root attribute `name`; nothing if there is none. Throws Error (kData) if it is of another type.
std::optional<std::int64_t> read_integer(const NamedHdf5File& file, const std::string& name);
std::optional<std::string> read_text(const NamedHdf5File& file, const std::string& name);

void write_attribute(const Hdf5File& file, const char* name, std::int64_t value);
void write_attribute(const Hdf5File& file, const char* name, const std::string& text);

// A new file that never touches the disk: where a write fails, HDF5 1.10 crashes as the file is closed.
Hdf5File create_hdf5_in_memory(const std::string& name);

// The bytes of such a file, as they shall lie on the disk.
std::vector<std::byte> hdf5_image(const Hdf5File& file);

// Opens a file whose bytes have been read already.
NamedHdf5File open_hdf5_image(std::span<const std::byte> image, const std::string& name);

}  // namespace convnet
