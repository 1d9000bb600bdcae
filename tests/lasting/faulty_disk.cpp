// Preloaded into the program by tests (LD_PRELOAD): a disk that is slow or fails, for files that are
// made as checkpoints or as temporary ones ("*.tmp-*"), and for checkpoints that are removed. CONVNET_DISK
// says how, in words:
//
//   pause=US     sleep so many microseconds around each call
//   piece=BYTES  write at most so many bytes a call
//   phase=FILE   keep one byte there, a letter of lasting/phase.hpp: what is being done
//   only=TEXT    let fail only calls on names with this text
//   fail=CALL    open, write, fsync, close, rename or remove fails ...
//   nth=N        ... from the n-th such call on
//   error=ERRNO  ... with this error
//   room=BYTES   what the disk says is free
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lasting/phase.hpp"

namespace {

using convnet::Phase;

std::string word(std::string_view name) {
  const char* const all = std::getenv("CONVNET_DISK");
  std::string text = " ";
  text.append(all == nullptr ? "" : all).append(" ");
  std::string key = " ";
  key.append(name).append("=");
  const std::size_t at = text.find(key);
  if (at == std::string::npos) {
    return "";
  }
  const std::size_t first = at + key.size();
  return text.substr(first, text.find(' ', first) - first);
}

long number(std::string_view name, long otherwise) {
  const std::string text = word(name);
  return text.empty() ? otherwise : std::stol(text);
}

char* map_phase(const std::string& path) {
  static char none = 0;
  const int descriptor = path.empty() ? -1 : ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* const byte =
      descriptor < 0 ? MAP_FAILED : mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return byte == MAP_FAILED ? &none : static_cast<char*>(byte);
}

struct Disk {
  long pause = number("pause", 0);
  std::size_t piece = static_cast<std::size_t>(number("piece", 1L << 40));
  std::string only = word("only");
  std::string fail = word("fail");
  long nth = number("nth", 1);
  int error = static_cast<int>(number("error", EIO));
  long room = number("room", -1);
  std::atomic<long> calls = 0;
  std::array<std::atomic<char>, 1024> open_for{};  // by descriptor: the phase of a temporary file's writing
  std::array<std::atomic<bool>, 1024> may_fail{};
};

Disk& disk() {
  static Disk instance;
  return instance;
}

char* phase_byte() {
  static char* const byte = map_phase(word("phase"));
  return byte;
}

void enter(Phase phase) {
  *static_cast<volatile char*>(phase_byte()) = static_cast<char>(phase);
}

void wait_a_little() {
  if (disk().pause > 0) {
    usleep(static_cast<useconds_t>(disk().pause));
  }
}

bool is_temporary(std::string_view path) {
  return path.find(".tmp-") != std::string_view::npos;
}

bool is_checkpoint(std::string_view path) {
  return path.find("/step-") != std::string_view::npos;
}

bool is_meant(std::string_view path) {
  return path.find(disk().only) != std::string_view::npos;
}

bool is_tracked(int descriptor) {
  return descriptor >= 0 && static_cast<std::size_t>(descriptor) < disk().open_for.size() &&
         disk().open_for[static_cast<std::size_t>(descriptor)] != 0;
}

// Whether this call fails; errno then says how.
bool fails(std::string_view call) {
  if (disk().fail != call || ++disk().calls < disk().nth) {
    return false;
  }
  errno = disk().error;
  return true;
}

bool fails(std::string_view call, int descriptor) {
  return disk().may_fail[static_cast<std::size_t>(descriptor)] && fails(call);
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int open_file(const char* path, int flags, mode_t mode) {
  static auto* const next = real<int(const char*, int, ...)>("open");
  const bool is_ours = (is_temporary(path) || is_checkpoint(path)) && (flags & O_CREAT) != 0;
  if (is_ours && is_meant(path) && fails("open")) {
    return -1;
  }
  const int descriptor = next(path, flags, mode);
  if (is_ours && descriptor >= 0 && static_cast<std::size_t>(descriptor) < disk().open_for.size()) {
    const Phase phase = is_checkpoint(path) ? Phase::kWrite : Phase::kProbe;
    disk().open_for[static_cast<std::size_t>(descriptor)] = static_cast<char>(phase);
    disk().may_fail[static_cast<std::size_t>(descriptor)] = is_meant(path);
    enter(phase);
    wait_a_little();
  }
  return descriptor;
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_file(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_file(path, flags | O_LARGEFILE, mode);
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  static auto* const next = real<ssize_t(int, const void*, size_t)>("write");
  if (!is_tracked(descriptor)) {
    return next(descriptor, bytes, count);
  }
  wait_a_little();
  return fails("write", descriptor) ? -1 : next(descriptor, bytes, std::min(count, disk().piece));
}

int fsync(int descriptor) {
  static auto* const next = real<int(int)>("fsync");
  if (!is_tracked(descriptor)) {
    return next(descriptor);
  }
  wait_a_little();
  const int result = fails("fsync", descriptor) ? -1 : next(descriptor);
  if (disk().open_for[static_cast<std::size_t>(descriptor)] == static_cast<char>(Phase::kWrite)) {
    enter(Phase::kSynced);
  }
  return result;
}

int close(int descriptor) {
  static auto* const next = real<int(int)>("close");
  const bool was_tracked = is_tracked(descriptor);
  if (was_tracked) {
    disk().open_for[static_cast<std::size_t>(descriptor)] = 0;
  }
  const int result = next(descriptor);
  return was_tracked && fails("close", descriptor) ? -1 : result;
}

int rename(const char* from, const char* to) noexcept {
  static auto* const next = real<int(const char*, const char*)>("rename");
  if (!is_temporary(from)) {
    return next(from, to);
  }
  wait_a_little();
  if (is_meant(from) && fails("rename")) {
    return -1;
  }
  const int result = next(from, to);
  enter(is_checkpoint(from) ? Phase::kRenamed : Phase::kProbe);
  wait_a_little();
  enter(Phase::kIdle);
  return result;
}

int remove(const char* path) noexcept {
  static auto* const next = real<int(const char*)>("remove");
  if (!is_checkpoint(path) || is_temporary(path)) {
    return next(path);
  }
  enter(Phase::kPruning);
  wait_a_little();
  const int result = is_meant(path) && fails("remove") ? -1 : next(path);
  wait_a_little();
  enter(Phase::kIdle);
  return result;
}

int statvfs(const char* path, struct statvfs* facts) noexcept {
  static auto* const next = real<int(const char*, struct statvfs*)>("statvfs");
  const int result = next(path, facts);
  if (result == 0 && disk().room >= 0) {
    facts->f_bavail = static_cast<fsblkcnt_t>(disk().room) / facts->f_frsize;
  }
  return result;
}

}  // extern "C"
