// Ranks that are killed, stopped, stuck or slow, by real signals under the real mpiexec.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>

#include "app/bars.hpp"
#include "app/running_job.hpp"
#include "log_events.hpp"

namespace convnet {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;
constexpr int kDeadline = 2;      // seconds
constexpr auto kLimit = 40s;      // until the job has ended: deadline, grace, and a machine with much to do
constexpr int kUnavailable = 69;  // the watchdog's exit code

std::string this_host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

class WatchdogProgram : public testing::Test {
 protected:
  void SetUp() override {
    write_bars(folder_.path());
    ASSERT_EQ(run_convnet({"convert", folder_.path(), data_}).exit_code, 0);
    ASSERT_EQ(mkfifo(fifo_.c_str(), 0600), 0);
  }

  Arguments train(const Arguments& arguments, int deadline = kDeadline) const {
    Arguments words{"train",
                    "--data",
                    data_,
                    "--threads",
                    "1",
                    "--batch",
                    "20",
                    "--device",
                    "cpu",
                    "--log-every",
                    "1",
                    "--epochs",
                    "1000000",
                    "--watchdog-seconds",
                    std::to_string(deadline)};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }

  static bool is_in_training(RunningJob& job) {
    const auto trains = [&job] { return occurrences(job.out(), "Loss: ") > 2; };
    return wait_until([&] { return trains() || job.has_ended(); }, kLimit) && trains();
  }

  // What a rank says that waits for others in a step.
  static bool says_where_it_waits(const std::string& err, int rank) {
    return std::regex_search(
        err, std::regex("convnet: rank " + std::to_string(rank) + " on " + this_host() +
                        ": has waited \\d+ s in MPI_\\w+ of step [1-9]\\d*, (training|evaluating)"));
  }

  TemporaryFolder folder_;
  std::string data_ = folder_ / "bars.h5";
  std::string log_ = folder_ / "log.jsonl";
  std::string fifo_ = folder_ / "fifo";  // nobody writes: a rank that opens it hangs there
};

TEST_F(WatchdogProgram, AStoppedRankEndsTheJobAndIsNamed) {
  RunningJob job(job_command({{3, train({})}}));
  ASSERT_TRUE(is_in_training(job)) << job.err();
  const pid_t stopped = job.rank(1);
  ASSERT_EQ(kill(stopped, SIGSTOP), 0);
  const ProgramResult result = job.result(kLimit);
  EXPECT_EQ(result.exit_code, kUnavailable) << result.err;
  EXPECT_TRUE(says_where_it_waits(result.err, 0)) << result.err;
  EXPECT_TRUE(says_where_it_waits(result.err, 2)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("convnet: rank 0 on " + this_host() + ": no answer from rank 1 on " +
                                    this_host() + " (killed, stopped or unreachable)"));
  EXPECT_THAT(result.err, Not(HasSubstr("elsewhere")));
  EXPECT_TRUE(wait_until([stopped] { return is_gone(stopped); }, kLimit));
}

TEST_F(WatchdogProgram, AStoppedRank0EndsTheJobAndIsNamedByTheOthers) {
  RunningJob job(job_command({{3, train({})}}));
  ASSERT_TRUE(is_in_training(job)) << job.err();
  const pid_t stopped = job.rank(0);
  ASSERT_EQ(kill(stopped, SIGSTOP), 0);
  const ProgramResult result = job.result(kLimit);
  EXPECT_EQ(result.exit_code, kUnavailable) << result.err;
  for (const int rank : {1, 2}) {
    EXPECT_TRUE(says_where_it_waits(result.err, rank)) << result.err;
    EXPECT_THAT(result.err, HasSubstr("convnet: rank " + std::to_string(rank) + " on " + this_host() +
                                      ": no answer from rank 0 on " + this_host()));
  }
  EXPECT_TRUE(wait_until([stopped] { return is_gone(stopped); }, kLimit));
}

// mpiexec ends the others at once, with a second between SIGTERM and SIGKILL: they say where they wait.
TEST_F(WatchdogProgram, AKilledRankEndsTheJobAndIsNamed) {
  for (const Arguments& saving : {Arguments{}, Arguments{"--checkpoint-dir", folder_ / "saved"}}) {
    for (const int killed : {0, 1}) {
      RunningJob job(job_command({{3, train(saving)}}));
      ASSERT_TRUE(is_in_training(job)) << job.err();
      ASSERT_EQ(kill(job.rank(killed), SIGKILL), 0);
      const ProgramResult result = job.result(kLimit);
      EXPECT_GT(result.exit_code, 0);
      EXPECT_THAT(result.err, HasSubstr("signal 9"));
      for (const int survivor : {1 - killed, 2}) {
        EXPECT_TRUE(says_where_it_waits(result.err, survivor)) << result.err;
      }
      EXPECT_THAT(result.err, HasSubstr(fmt::format("rank {} on {}: no answer from rank {} on {}", 1 - killed,
                                                    this_host(), killed, this_host())));
      EXPECT_THAT(result.err, Not(HasSubstr("MPI_ABORT")));
      std::filesystem::remove_all(folder_ / "saved");
    }
  }
}

TEST_F(WatchdogProgram, ARankThatIsStuckElsewhereIsNamed) {
  for (const int stuck : {0, 1}) {
    std::vector<Ranks> groups;
    for (int rank = 0; rank < 3; ++rank) {
      groups.push_back({1, train({"--data", rank == stuck ? fifo_ : data_})});
    }
    RunningJob job(job_command(groups));
    const ProgramResult result = job.result(kLimit);
    EXPECT_EQ(result.exit_code, kUnavailable) << result.err;
    EXPECT_THAT(result.err, HasSubstr("rank 2 on " + this_host() + ": has waited "));
    EXPECT_THAT(result.err, HasSubstr("s in MPI_Allgatherv before step 1, reading the data"));
    EXPECT_THAT(result.err,
                HasSubstr("rank 0 on " + this_host() + ": elsewhere than the ranks that wait: rank " +
                          std::to_string(stuck) + " on " + this_host() + " has computed for "));
    EXPECT_THAT(result.err, Not(HasSubstr("no answer")));
  }
}

TEST_F(WatchdogProgram, ARankAloneThatIsStuckEndsWithOneLine) {
  RunningJob job(job_command({{1, train({"--data", fifo_})}}));
  const ProgramResult result = job.result(kLimit);
  EXPECT_EQ(result.exit_code, kUnavailable);
  EXPECT_EQ(result.err,
            "convnet: has computed for 2 s before step 1, reading the data (--watchdog-seconds 2)\n");
}

TEST_F(WatchdogProgram, WithoutThreadsInMpiEachRankSpeaksAndEndsForItself) {
  Arguments words = job_command({{3, train({})}});
  words.insert(std::ranges::find(words, CONVNET_MPIEXEC) + 1, {"-x", "LD_PRELOAD=" FUNNELED_MPI});
  RunningJob job(words);
  ASSERT_TRUE(is_in_training(job)) << job.err();
  const pid_t stopped = job.rank(0);
  ASSERT_EQ(kill(stopped, SIGSTOP), 0);
  const ProgramResult result = job.result(kLimit);
  EXPECT_EQ(result.exit_code, kUnavailable) << result.err;
  EXPECT_TRUE(says_where_it_waits(result.err, 1)) << result.err;
  EXPECT_TRUE(says_where_it_waits(result.err, 2)) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("no answer")));
  EXPECT_TRUE(wait_until([stopped] { return is_gone(stopped); }, kLimit));
}

TEST_F(WatchdogProgram, RefusesDeadlinesThatAreNone) {
  for (const char* seconds : {"-1", "soon", "0.5"}) {
    const ProgramResult result = run_ranks({{1, train({"--watchdog-seconds", seconds})}});
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("--watchdog-seconds"));
  }
}

// --- No false alarm

class SlowProgram : public WatchdogProgram {
 protected:
  static constexpr int kLongDeadline = 6;  // seconds

  Arguments finite_train() const { return train({"--max-steps", "1000", "--log", log_}, kLongDeadline); }

  void expect_undisturbed_end(RunningJob& job) const {
    const ProgramResult result = job.result(kLimit);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("watchdog")));
    const auto weights = read_events(log_, "run_end").at(0)["weights_sha256"];
    ASSERT_EQ(run_ranks({{3, finite_train()}}).exit_code, 0);
    EXPECT_EQ(weights, read_events(log_, "run_end").at(0)["weights_sha256"]);
  }

  static void stop(pid_t rank) {
    ASSERT_EQ(kill(rank, SIGSTOP), 0);
    ASSERT_TRUE(wait_until([rank] { return is_stopped(rank); }, kLimit)) << "it ended before it was stopped";
  }
};

TEST_F(SlowProgram, ARankThatIsStoppedAgainAndAgainForLessThanTheDeadlineIsLeftAlone) {
  RunningJob job(job_command({{3, finite_train()}}));
  ASSERT_TRUE(is_in_training(job)) << job.err();
  const pid_t slow = job.rank(1);
  for (int i = 0; i < 4; ++i) {
    ASSERT_NO_FATAL_FAILURE(stop(slow));
    std::this_thread::sleep_for(2s);
    ASSERT_EQ(kill(slow, SIGCONT), 0);
    const auto steps = occurrences(job.out(), "Loss: ");
    ASSERT_TRUE(wait_until([&] { return occurrences(job.out(), "Loss: ") > steps; }, kLimit));
  }
  expect_undisturbed_end(job);
}

TEST_F(SlowProgram, AJobThatIsSuspendedForLongerThanTheDeadlineIsLeftAlone) {
  RunningJob job(job_command({{3, finite_train()}}));
  ASSERT_TRUE(is_in_training(job)) << job.err();
  const pid_t last_to_go_on = job.rank(1);
  const std::array others{job.rank(0), job.rank(2)};
  ASSERT_NO_FATAL_FAILURE(stop(last_to_go_on));
  std::this_thread::sleep_for(300ms);  // by now the others wait for it
  for (const pid_t rank : others) {
    ASSERT_NO_FATAL_FAILURE(stop(rank));
  }
  std::this_thread::sleep_for(kLongDeadline * 1500ms);
  for (const pid_t rank : others) {
    ASSERT_EQ(kill(rank, SIGCONT), 0);
  }
  std::this_thread::sleep_for(3s);  // longer than rank 0 waits for an answer
  ASSERT_EQ(kill(last_to_go_on, SIGCONT), 0);
  expect_undisturbed_end(job);
}

TEST_F(WatchdogProgram, ADeadlineOf0MakesNoThread) {
  const auto threads = [this](int deadline) {
    RunningJob job(job_command({{2, train({}, deadline)}}));
    EXPECT_TRUE(is_in_training(job)) << job.err();
    return thread_count_of(job.rank(1));
  };
  EXPECT_EQ(threads(kDeadline), threads(0) + 1);
}

}  // namespace
}  // namespace convnet
