#pragma once

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "temporary_folder.hpp"

namespace convnet {

using Arguments = std::vector<std::string>;

inline Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct ProgramResult {
  int exit_code = 0;  // 128 + signal of a program that a signal ended
  std::string out;
  std::string err;
};

// A text file's whole content; empty if it cannot be read.
inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Runs a command, its words passed on as they are, and waits for its end.
inline ProgramResult run_command(const std::vector<std::string>& words) {
  const auto quoted = [](const std::string& word) {
    std::string text;
    for (const char letter : word) {
      text.append(letter == '\'' ? "'\\''" : std::string(1, letter));
    }
    return fmt::format("'{}' ", text);
  };
  const TemporaryFolder folder;
  std::string line;
  for (const std::string& word : words) {
    line += quoted(word);
  }
  line += fmt::format(">{} 2>{}", quoted(folder / "out"), quoted(folder / "err"));
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(folder / "out"),
          read_text(folder / "err")};
}

// Ranks that all have the same arguments.
struct Ranks {
  int count;
  std::vector<std::string> arguments;
};

// The command that runs convnet under mpiexec, as one job of all these ranks. One rank alone is started
// without mpiexec.
inline std::vector<std::string> job_command(const std::vector<Ranks>& groups,
                                            const std::string& program = CONVNET_PROGRAM) {
  std::vector<std::string> words{"env", "OMPI_MCA_mpi_yield_when_idle=1"};
  if (geteuid() == 0) {
    words.insert(words.end(), {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  }
  const bool is_alone = groups.size() == 1 && groups.front().count == 1;
  if (!is_alone) {
    words.insert(words.end(), {CONVNET_MPIEXEC, "--oversubscribe", "--bind-to", "none"});
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!is_alone) {
      words.insert(words.end(), {"-n", std::to_string(groups[i].count)});
    }
    words.emplace_back(program);
    words.insert(words.end(), groups[i].arguments.begin(), groups[i].arguments.end());
    if (i + 1 < groups.size()) {
      words.emplace_back(":");
    }
  }
  return words;
}

inline ProgramResult run_ranks(const std::vector<Ranks>& groups) {
  return run_command(job_command(groups));
}

inline std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

// Runs convnet itself.
inline ProgramResult run_convnet(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{CONVNET_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_command(words);
}

}  // namespace convnet
