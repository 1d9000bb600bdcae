#include "train/folder_lock.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>

#include "base/clock.hpp"
#include "convnet/error.hpp"

namespace convnet {
namespace {

// Opened for reading, so that the file system may still be made read-only; but NFS locks only what may be
// written.
int open_lock(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw Error(ExitCode::kIo, folder.string() + ": cannot make the folder: " + error.message());
  }
  const std::filesystem::path file = folder / "lock";
  const int descriptor = open(file.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    throw system_error(file, "open");
  }
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EBADF) {
    return descriptor;
  }
  close(descriptor);
  const int writable = open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (writable < 0) {
    throw system_error(file, "open");
  }
  return writable;
}

// Whether the lock is taken; false: by another process.
bool try_lock(int descriptor, const std::string& folder) {
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
    return true;
  }
  if (errno != EWOULDBLOCK) {
    spdlog::warn("{}: cannot be locked against other runs: {}", folder,
                 std::generic_category().message(errno));
    return true;
  }
  return false;
}

}  // namespace

FolderLock::Descriptor::~Descriptor() {
  close(number_);
}

FolderLock::FolderLock(const std::filesystem::path& folder, const std::function<void()>& on_wait)
    : descriptor_(open_lock(folder)) {
  constexpr double kPatience = 30.0;  // seconds
  const Stopwatch waited;
  bool has_told = false;
  while (!try_lock(descriptor_.get(), folder)) {
    if (waited.seconds() > kPatience) {
      throw Error(ExitCode::kUsage, "--checkpoint-dir " + folder.string() +
                                        ": another run writes there, expected a folder of this run's own");
    }
    if (!has_told) {
      spdlog::info("waiting for another run to leave {}", folder.string());
      has_told = true;
    }
    on_wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace convnet
