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

  // Takes away what writers that were killed have left, and makes sure that the run can be saved: that there
  // is room to keep `keep` checkpoints of `bytes`, and one more on its way, and that a file of so many can be
  // written. Throws Error (kIo) naming the folder.
  void prepare(std::uint64_t bytes, int keep) const;

  // Takes all but the newest `keep` away.
  void prune(int keep) const;

  // Gives a checkpoint that cannot be used a name that is none of a checkpoint; returns the name. Throws
  // Error (kIo) if that fails.
  std::filesystem::path put_aside(const std::filesystem::path& checkpoint) const;

 private:
  std::filesystem::path path_;
};

}  // namespace convnet
