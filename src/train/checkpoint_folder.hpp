#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace convnet {

// A folder of checkpoints, which belongs to one run. Their names are "step-000000600.h5", by the steps done;
// no other name is taken for one. Used by rank 0.
class CheckpointFolder {
 public:
  // Does not touch the disk.
  explicit CheckpointFolder(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path file_of(std::int64_t global_step) const;

  // Newest first; empty if there is no such folder. Throws Error (kIo) if it cannot be read.
  std::vector<std::filesystem::path> checkpoints() const;

  // Makes the folder, if it is not there, and the sure sign that it can be written to: a file of `bytes`,
  // taken away again. Also takes away what writers that were killed have left. Throws Error (kIo) naming the
  // folder if it cannot be made or written to, or has less room than two checkpoints of so many bytes.
  void prepare(std::uint64_t bytes) const;

  // Takes all but the newest `keep` away.
  void prune(int keep) const;

  // Gives a damaged checkpoint a name that is none of a checkpoint; returns the name.
  std::filesystem::path put_aside(const std::filesystem::path& checkpoint) const;

 private:
  std::filesystem::path path_;
};

}  // namespace convnet
