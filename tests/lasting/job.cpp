#include "lasting/job.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>

#include "app/run_program.hpp"

namespace convnet {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::vector<std::string> command_of(const JobPlan& plan) {
  std::vector<std::string> words;
  if (plan.ranks > 1) {
    words = {CONVNET_MPIEXEC, "--oversubscribe", "--bind-to", "none", "-n", std::to_string(plan.ranks)};
  }
  words.emplace_back(CONVNET_PROGRAM);
  words.insert(words.end(), plan.arguments.begin(), plan.arguments.end());
  return words;
}

// Ranks that are killed leave files behind, where TMPDIR and the shared memory are: here, so that they go
// with the test's folder.
std::vector<std::string> environment_of(const JobPlan& plan) {
  std::vector<std::string> words{"TMPDIR=" + plan.folder.string(),
                                 "OMPI_MCA_btl_vader_backing_directory=" + plan.folder.string(),
                                 "OMPI_MCA_mpi_yield_when_idle=1"};
  if (geteuid() == 0) {
    words.insert(words.end(), {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  }
  if (!plan.disk.empty()) {
    words.push_back("LD_PRELOAD=" CONVNET_FAULTY_DISK);
    words.push_back(fmt::format("CONVNET_DISK={} phase={}", plan.disk, (plan.folder / "phase").string()));
  }
  return words;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) {
    all.push_back(word.data());
  }
  all.push_back(nullptr);
  return all;
}

// In the child: its files, its environment, the program. Only system calls and what was made before.
[[noreturn]] void become(const std::vector<char*>& command, const std::vector<char*>& environment,
                         const std::string& out, const std::string& err) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto redirect = [](const std::string& path, int descriptor) {
    dup2(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), descriptor);
  };
  redirect(out, STDOUT_FILENO);
  redirect(err, STDERR_FILENO);
  for (char* const word : environment) {
    if (word != nullptr) {
      putenv(word);
    }
  }
  execvp(command.front(), command.data());
  _exit(127);
}

// The parent of every process.
std::map<pid_t, pid_t> parents() {
  std::map<pid_t, pid_t> all;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) {
      continue;
    }
    const std::string stat = read_text(entry.path() / "stat");  // PID (NAME) STATE PARENT ...
    const std::size_t end_of_name = stat.rfind(')');
    if (end_of_name != std::string::npos && stat.size() > end_of_name + 4 && stat[end_of_name + 2] != 'Z') {
      all[pid] = std::atoi(stat.c_str() + end_of_name + 4);
    }
  }
  return all;
}

// All living processes that come from this one: with PR_SET_CHILD_SUBREAPER orphans do, too.
std::vector<pid_t> descendants() {
  const auto all = parents();
  std::vector<pid_t> found;
  for (const auto& [pid, parent] : all) {
    pid_t ancestor = parent;
    while (ancestor != getpid() && all.contains(ancestor)) {
      ancestor = all.at(ancestor);
    }
    if (ancestor == getpid()) {
      found.push_back(pid);
    }
  }
  return found;
}

}  // namespace

Job::Job(const JobPlan& plan) : folder_(plan.folder) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::ofstream(folder_ / "phase") << '\0';
  std::vector<std::string> words = command_of(plan);
  std::vector<std::string> environment = environment_of(plan);
  const std::vector<char*> command = pointers(words);
  const std::vector<char*> variables = pointers(environment);
  const std::string out = folder_ / "out";
  const std::string err = folder_ / "err";
  std::ofstream(out).close();  // not the last job's, should this one be struck before it has files
  std::ofstream(err).close();
  pid_ = fork();
  if (pid_ == 0) {
    become(command, variables, out, err);
  }
}

Job::~Job() {
  for (const pid_t pid : descendants()) {
    kill(pid, SIGKILL);
  }
  while (waitpid(-1, nullptr, 0) > 0) {
  }
}

std::vector<pid_t> Job::ranks() const {
  std::vector<pid_t> found;
  for (const pid_t pid : descendants()) {
    std::error_code ignored;
    const fs::path program = fs::read_symlink(fmt::format("/proc/{}/exe", pid), ignored);
    if (program == fs::canonical(CONVNET_PROGRAM)) {
      found.push_back(pid);
    }
  }
  return found;
}

bool Job::is_over() {
  int status = 0;
  if (!is_over_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    is_over_ = true;
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return is_over_;
}

int Job::wait(std::chrono::seconds limit) {
  const auto end = Clock::now() + limit;
  while ((!is_over() || !ranks().empty()) && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    while (is_over_ && waitpid(-1, nullptr, WNOHANG) > 0) {  // orphans
    }
  }
  if (!is_over() || !ranks().empty()) {
    ADD_FAILURE() << "still runs after " << limit.count() << " s\n" << out() << err();
  }
  for (const pid_t pid : descendants()) {  // or what Open MPI starts beside a rank, which may outlive it
    kill(pid, SIGKILL);
  }
  while (!is_over()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return exit_code_;
}

Phase Job::phase() const {
  const std::string letter = read_text(folder_ / "phase");
  return letter.empty() ? Phase::kIdle : static_cast<Phase>(letter.front());
}

std::string Job::out() const {
  return read_text(folder_ / "out");
}

std::string Job::err() const {
  return read_text(folder_ / "err");
}

}  // namespace convnet
