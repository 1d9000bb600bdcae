#pragma once

#include <filesystem>

#include "comm/mpi_communicator.hpp"
#include "convnet/dataset.hpp"

namespace convnet {

// Reads ranges of a data file once for all ranks of a node: the node's first rank reads into a window of shared
// memory, the others wait and see the same memory. All ranks of `node` give the same ranges. Collective; if reading
// fails, every rank throws.
Dataset load_shared_dataset(const std::filesystem::path& path, RowRange train, RowRange test,
                            MpiCommunicator& node);

// Reads ranges of a data file into this rank's own memory. Not collective.
Dataset load_private_dataset(const std::filesystem::path& path, RowRange train, RowRange test);

}  // namespace convnet
