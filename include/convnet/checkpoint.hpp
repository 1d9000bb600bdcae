#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "convnet/model_state.hpp"
#include "convnet/network.hpp"

namespace convnet {

// How far a run has come. It counts samples, so that it means the same at any number of ranks.
struct Position {
  int epoch = 1;                 // from 1: the one under way; the number of epochs + 1 where all are done
  std::int64_t step = 0;         // steps done in this epoch
  std::int64_t samples = 0;      // training samples seen in this epoch, by all ranks together
  std::int64_t global_step = 0;  // steps done in the run

  friend bool operator==(const Position&, const Position&) = default;
};

// All that a run needs to go on as if it had never stopped.
struct Checkpoint {
  Network network;
  ModelState state;                 // with the running statistics that would be evaluated
  std::vector<float> rank_buffers;  // where ranks have running statistics of their own that still count:
                                    // state.buffers of each rank, in rank order; else empty
  Position position;
  std::int64_t optimizer_start = 0;  // steps done when the moments began, at 0
  int world_size = 1;                // ranks that made it
  std::string options;               // a JSON object: value by name of the flag
  std::string data;                  // what tells the training data from others
  std::string versions;              // a JSON object: of the program and its libraries
};

// The file of a checkpoint: 512 bytes of text, "convnet-checkpoint 1", the number of bytes and the SHA-256 of
// what follows; then an HDF5 file, which HDF5's tools find there (they skip what precedes it): group /model
// with a float32 data set for each tensor, by PyTorch's names; group /optimizer with a group for each moment
// (momentum_buffer; or exp_avg and exp_avg_sq) of such data sets; attributes of the root for all the rest.
// The same checkpoint gives the same bytes, on any machine.
std::vector<std::byte> checkpoint_bytes(const Checkpoint& checkpoint);

// Throws Error (kData) naming `name`, what was found and what was expected: empty, no checkpoint, of another
// version, cut off, or damaged, be it by one bit.
Checkpoint parse_checkpoint(std::span<const std::byte> bytes, const std::string& name);

// Also throws Error (kIo) if the file cannot be read.
Checkpoint read_checkpoint(const std::filesystem::path& path);

}  // namespace convnet
