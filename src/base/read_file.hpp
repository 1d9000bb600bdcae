#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <vector>

namespace convnet {

// A file opened for reading, whose first byte, if there is one, can be read. Throws Error (kIo) naming `path`
// and what the operating system says.
std::ifstream open_to_read(const std::filesystem::path& path);

// All bytes of a file. Throws Error (kIo) naming `path` if it cannot be read.
std::vector<std::byte> read_file(const std::filesystem::path& path);

}  // namespace convnet
