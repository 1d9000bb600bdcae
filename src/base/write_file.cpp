#include "base/write_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <random>
#include <string>
#include <utility>

#include "convnet/error.hpp"

namespace convnet {
namespace {

// Random, because neither process numbers nor host names are unique among containers that share a folder.
std::filesystem::path temporary_name(const std::filesystem::path& target) {
  std::random_device random;
  return target.string() + ".tmp-" + std::to_string(random()) + "-" + std::to_string(random());
}

// A new file beside `target`, removed again unless it takes the target's place.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target)
      : target_(target),
        path_(temporary_name(target)),
        descriptor_(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    require(descriptor_ >= 0, "create");
  }

  ~TemporaryFile() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
    if (!is_renamed_) {
      unlink(path_.c_str());
    }
  }

  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      require(written >= 0 || errno == EINTR, "write");
      bytes = bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
    }
  }

  // Synced and closed before it is renamed: network file systems report a full disk only then.
  void replace_target() {
    require(fsync(descriptor_) == 0, "sync");
    require(::close(std::exchange(descriptor_, -1)) == 0, "close");
    require(rename(path_.c_str(), target_.c_str()) == 0, "rename a temporary file to it");
    is_renamed_ = true;
  }

 private:
  void require(bool success, const char* call) const {
    if (!success) {
      throw system_error(target_, call);
    }
  }

  std::filesystem::path target_;
  std::filesystem::path path_;
  int descriptor_;
  bool is_renamed_ = false;
};

// Makes the new name survive a power failure. Not every file system can; the file is complete either way.
void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0) {
    fsync(descriptor);
    close(descriptor);
  }
}

}  // namespace

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    const bool is_folder = std::filesystem::is_directory(path, ignored);
    throw Error(ExitCode::kIo, path.string() + ": cannot write: found " +
                                   (is_folder ? "a folder" : "a device") + ", expected the name of a file");
  }
  // A write beyond the process's file size limit shall fail like one on a full disk, not end the process.
  std::signal(SIGXFSZ, SIG_IGN);
  TemporaryFile file(path);
  file.write(bytes);
  file.replace_target();
  sync_folder(path.parent_path());
}

}  // namespace convnet
