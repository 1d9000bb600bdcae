#pragma once

#include <future>
#include <optional>
#include <string>
#include <utility>

#include "convnet/checkpoint.hpp"
#include "train/checkpoint_folder.hpp"

namespace convnet {

// A checkpoint that has been written.
struct Written {
  std::string path;
  std::int64_t global_step = 0;
  std::size_t bytes = 0;
  double seconds = 0.0;
};

// Writes one checkpoint after the other while training goes on. Nothing else may call HDF5 meanwhile, which
// is not safe among threads. Used by rank 0.
class CheckpointWriter {
 public:
  CheckpointWriter(CheckpointFolder folder, int keep) : folder_(std::move(folder)), keep_(keep) {}

  // Begins to write, once the one before is done.
  void start(Checkpoint checkpoint);

  // What has been written since the last call; waits for a writing under way if told to. Throws its Error
  // (kIo) if it has failed: then the checkpoint before still stands.
  std::optional<Written> written(bool wait);

 private:
  CheckpointFolder folder_;
  int keep_;
  std::future<Written> writing_;
};

}  // namespace convnet
