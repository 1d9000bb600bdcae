#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace convnet {

// Makes `path` a file of these bytes, in place of any file of that name. They are written to a new file in
// the same folder, synced to the disk and renamed: nobody ever sees half a file, and of several writers the
// last one wins. Throws Error (kIo) naming `path` if that fails (disk full, no such folder, `path` is a
// folder or a device); then what was at `path` before is still there, and the new file is not.
void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace convnet
