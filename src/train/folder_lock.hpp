#pragma once

#include <filesystem>
#include <functional>

namespace convnet {

// The right to write to a folder of checkpoints, held by one run at a time: a lock on the file "lock" in it,
// which the system takes back when the process ends, however it does.
class FolderLock {
 public:
  // Makes the folder, if it is not there. Waits half a minute for a run that holds it, as one that is about
  // to end may, and calls `on_wait` meanwhile, ten times a second, which may throw. Throws Error: kIo if the
  // folder cannot be made or written to, kUsage if another run keeps it. Where the file system has no locks,
  // it warns.
  FolderLock(const std::filesystem::path& folder, const std::function<void()>& on_wait);

 private:
  class Descriptor {
   public:
    explicit Descriptor(int number) : number_(number) {}
    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const { return number_; }

   private:
    int number_;
  };

  Descriptor descriptor_;
};

}  // namespace convnet
