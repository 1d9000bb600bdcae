#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "lasting/phase.hpp"

namespace convnet {

// What a job is started with.
struct JobPlan {
  int ranks = 1;
  std::vector<std::string> arguments;  // of convnet
  std::filesystem::path folder;        // for what it prints, and for all that MPI leaves behind
  std::string disk;                    // words for faulty_disk.cpp; empty: an ordinary disk
};

// A convnet that runs beside the test, alone or under mpiexec, and can be struck by signals. Whatever is left
// of it goes with the object.
class Job {
 public:
  explicit Job(const JobPlan& plan);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // The process started: mpiexec, or the only rank.
  pid_t launcher() const { return pid_; }

  // The ranks that live now, in the order in which they were started.
  std::vector<pid_t> ranks() const;

  bool is_over();

  // Waits for the end of launcher and ranks; if they still run after `limit` that is a failure, and they are
  // killed.
  // Returns the exit code, 128 + signal of a process that a signal ended.
  int wait(std::chrono::seconds limit = std::chrono::seconds(30));

  // What faulty_disk.cpp says that it is doing.
  Phase phase() const;

  // What it has printed so far.
  std::string out() const;
  std::string err() const;

 private:
  std::filesystem::path folder_;
  pid_t pid_ = -1;
  bool is_over_ = false;
  int exit_code_ = -1;
};

}  // namespace convnet
