#pragma once

#include <filesystem>

#include "convnet/dataset.hpp"

namespace convnet {

// Writes a data set as a data file (its format: convnet/data_file.hpp). Images lie in chunks of whole images,
// of about 1 MiB; images and labels carry Fletcher-32 checksums; nothing is compressed. The same data set
// gives the same bytes. Takes memory for the file on top of the data set. The file appears whole or not at
// all, and replaces a file of that name; throws Error (kIo) if it cannot be written.
void write_data_file(const std::filesystem::path& path, const Dataset& dataset);

}  // namespace convnet
