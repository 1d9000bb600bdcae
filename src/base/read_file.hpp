#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

namespace convnet {

// All bytes of a file. Throws Error (kIo) naming `path` if it cannot be read.
std::vector<std::byte> read_file(const std::filesystem::path& path);

}  // namespace convnet
