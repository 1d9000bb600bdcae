#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>

#include <chrono>
#include <functional>
#include <sstream>
#include <thread>

#include "app/run_program.hpp"

namespace convnet {

// Polls until `condition` holds, and says whether it did in time.
inline bool wait_until(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// The fields of /proc/PID/stat behind the name: the state ('T': stopped), the parent, ...; empty if there is
// no such process.
inline std::vector<std::string> stat_of(pid_t pid) {
  const std::string text = read_text("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = text.rfind(')');
  std::istringstream fields(name_end == std::string::npos ? "" : text.substr(name_end + 1));
  return {std::istream_iterator<std::string>(fields), {}};
}

inline bool is_stopped(pid_t pid) {
  const auto fields = stat_of(pid);
  return !fields.empty() && fields[0] == "T";
}

// A process that has ended may still be in the table until its parent looks.
inline bool is_gone(pid_t pid) {
  const auto fields = stat_of(pid);
  return fields.empty() || fields[0] == "Z" || fields[0] == "X";
}

inline std::size_t thread_count_of(pid_t pid) {
  const std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task");
  return static_cast<std::size_t>(std::distance(begin(threads), end(threads)));
}

// A command that runs while the test goes on. Whatever is left of it ends with this.
class RunningJob {
 public:
  explicit RunningJob(const std::vector<std::string>& words) {
    std::vector<char*> arguments;
    for (const std::string& word : words) {
      arguments.push_back(const_cast<char*>(word.c_str()));  // posix_spawn leaves them alone
    }
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    const auto redirect = [&files](int descriptor, const std::string& path) {
      posix_spawn_file_actions_addopen(&files, descriptor, path.c_str(), O_WRONLY | O_CREAT, 0600);
    };
    redirect(1, folder_ / "out");
    redirect(2, folder_ / "err");
    if (posix_spawnp(&pid_, arguments.front(), &files, nullptr, arguments.data(), environ) != 0) {
      throw std::runtime_error("cannot start " + words.front());
    }
    posix_spawn_file_actions_destroy(&files);
  }

  ~RunningJob() {
    for (const pid_t rank : children()) {
      kill(rank, SIGKILL);
    }
    if (!has_ended_) {
      kill(pid_, SIGTERM);
      if (!wait_until([this] { return has_ended(); }, std::chrono::seconds(10))) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
      }
    }
  }
  RunningJob(const RunningJob&) = delete;
  RunningJob& operator=(const RunningJob&) = delete;

  std::string out() const { return read_text(folder_ / "out"); }
  std::string err() const { return read_text(folder_ / "err"); }

  // The process of a rank of mpiexec's; 0 if there is none.
  pid_t rank(int number) const {
    const std::string mark = "OMPI_COMM_WORLD_RANK=" + std::to_string(number);
    for (const pid_t child : children()) {
      const std::string variables =
          std::string(1, '\0') + read_text("/proc/" + std::to_string(child) + "/environ");
      if (variables.find(std::string(1, '\0') + mark + std::string(1, '\0')) != std::string::npos) {
        return child;
      }
    }
    return 0;
  }

  // Once it has ended, or after `limit`; then the exit code is -1.
  ProgramResult result(std::chrono::seconds limit) {
    wait_until([this] { return has_ended(); }, limit);
    const int ended = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
    return {has_ended_ ? ended : -1, out(), err()};
  }

  bool has_ended() {
    has_ended_ = has_ended_ || waitpid(pid_, &status_, WNOHANG) == pid_;
    return has_ended_;
  }

 private:
  std::vector<pid_t> children() const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      const auto fields = pid > 0 ? stat_of(pid) : std::vector<std::string>();
      if (fields.size() > 1 && fields[1] == std::to_string(pid_)) {
        found.push_back(pid);
      }
    }
    return found;
  }

  TemporaryFolder folder_;
  pid_t pid_ = 0;
  bool has_ended_ = false;
  int status_ = 0;
};

}  // namespace convnet
