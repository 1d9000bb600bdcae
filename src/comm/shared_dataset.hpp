#pragma once

#include <filesystem>

#include "comm/mpi_communicator.hpp"
#include "convnet/dataset.hpp"

namespace convnet {

// Reads ranges of a data file once for all ranks of a node: the node's first rank reads into a window of
// shared memory, the others wait and see the same memory. All ranks of `node` give the same ranges. If
// reading fails on any node, every rank of `world` throws. Collective, and so is letting go of the last
// Dataset that holds the memory.
Dataset load_shared_dataset(const std::filesystem::path& path, RowRange train, RowRange test,
                            MpiCommunicator& world, MpiCommunicator& node);

// Reads ranges of a data file into this rank's own memory. Not collective.
Dataset load_private_dataset(const std::filesystem::path& path, RowRange train, RowRange test);

}  // namespace convnet
