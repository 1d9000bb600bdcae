#pragma once

#include <filesystem>

namespace convnet {

// The right to write to a folder of checkpoints, held by one run at a time: a lock on the file "lock" in it,
// which the system takes back when the process ends, however it does.
class FolderLock {
 public:
  // Makes the folder, if it is not there. Waits half a minute for a run that holds it, as one that is about
  // to end may. Throws Error: kIo if the folder cannot be made or written to, kUsage if another run keeps it.
  // Where the file system has no locks, it warns.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace convnet
