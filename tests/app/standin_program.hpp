#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/bars.hpp"
#include "app/run_program.hpp"
#include "log_events.hpp"

// The program beside a CUDA back end on the stand-in for a GPU, which environment variables steer.

namespace convnet {

// Ranks that have the same arguments, and environment variables ("X=Y") of their own.
struct StandinRanks {
  int count = 1;
  Arguments arguments;
  Arguments environment;
};

// Runs a program as one job of all these ranks, which is ended, with code 124, if it has not within 30 s. The
// environment's own choice of GPUs does not count. One rank alone is started without mpiexec.
inline ProgramResult run_on_standin(const std::vector<StandinRanks>& groups,
                                    const std::string& program = CONVNET_PROGRAM) {
  // Open MPI would look for networks for longer than these runs take; and isolated ranks share one folder for
  // their sessions, where two that start at once meet.
  const TemporaryFolder sessions;
  Arguments words{"env",
                  "-u",
                  "CUDA_VISIBLE_DEVICES",
                  "OMPI_MCA_mpi_yield_when_idle=1",
                  "OMPI_MCA_pml=ob1",
                  "OMPI_MCA_btl=^openib,ofi,tcp",
                  "OMPI_MCA_ess_singleton_isolated=1",
                  "OMPI_MCA_orte_tmpdir_base=" + sessions.path().string()};
  const auto add = [&words](const Arguments& more) { words.insert(words.end(), more.begin(), more.end()); };
  if (geteuid() == 0) {
    add({"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  }
  add({"timeout", "-k", "5", "30"});
  const bool is_alone = groups.size() == 1 && groups.front().count == 1;
  if (!is_alone) {
    add({CONVNET_MPIEXEC, "--oversubscribe", "--bind-to", "none"});
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!is_alone) {
      add({"-n", std::to_string(groups[i].count)});
    }
    if (!groups[i].environment.empty()) {
      add({"env"});
      add(groups[i].environment);
    }
    add({program});
    add(groups[i].arguments);
    if (i + 1 < groups.size()) {
      add({":"});
    }
  }
  return run_command(words);
}

// What a run on the stand-in leaves in CONVNET_STANDIN_REPORT.
struct StandinReport {
  std::map<std::string, long> calls;  // of each entry point; where ranks differ, the fewest
  std::map<std::string, long> alive;  // what was never destroyed
};

inline StandinReport read_standin_report(const std::filesystem::path& path) {
  StandinReport report;
  std::istringstream lines(read_text(path));
  for (std::string line; std::getline(lines, line);) {
    // "call cudaMalloc 3", "live device memory 1": a kind may be two words.
    const std::size_t first = line.find(' ');
    const std::size_t last = line.rfind(' ');
    const std::string name = line.substr(first + 1, last - first - 1);
    const long count = std::stol(line.substr(last + 1));
    if (line.starts_with("live")) {
      report.alive[name] += count;
    } else {
      const auto [entry, is_new] = report.calls.emplace(name, count);
      entry->second = std::min(entry->second, count);
    }
  }
  return report;
}

// `convnet train` on a small data set, with one thread a rank.
class StandinProgram : public testing::Test {
 protected:
  explicit StandinProgram(const BarCounts& counts = {.train = 100, .test = 20}) : counts_(counts) {}

  void SetUp() override {
    write_bars(folder_.path(), counts_);
    ASSERT_EQ(run_convnet({"convert", folder_.path(), data_}).exit_code, 0);
  }

  Arguments command(const Arguments& arguments) const {
    Arguments words{"train", "--data", data_, "--threads", "1", "--batch", "20", "--log", log_};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }

  // On a GPU for each rank, unless the environment says otherwise.
  ProgramResult train(int ranks, const Arguments& arguments, const Arguments& environment = {}) const {
    Arguments all{"CONVNET_STANDIN_DEVICES=" + std::to_string(ranks)};
    all.insert(all.end(), environment.begin(), environment.end());
    return run_on_standin({{ranks, command(arguments), all}});
  }

  // As train(), where all must go well.
  void train_well(int ranks, const Arguments& arguments, const Arguments& environment = {}) const {
    const ProgramResult result = train(ranks, arguments, environment);
    ASSERT_EQ(result.exit_code, 0) << testing::PrintToString(arguments) << "\n" << result.err;
    EXPECT_EQ(result.err, "") << testing::PrintToString(arguments);
  }

  std::vector<nlohmann::json> events(const std::string& kind) const { return read_events(log_, kind); }

  BarCounts counts_;
  TemporaryFolder folder_;
  std::string data_ = folder_ / "bars.h5";
  std::string log_ = folder_ / "log.jsonl";
  std::string report_ = folder_ / "report";
};

}  // namespace convnet
