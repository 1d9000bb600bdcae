// Runs that are struck at random instants, all through their life, and must come to the same end as if they
// had been left alone.
//
//   CONVNET_LASTING_KILLS=N  kill so many times in all, and stop as often (default 50)
//   CONVNET_LASTING_SEED=N   of the random instants (default: another each time; it is printed)
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <random>

#include "app/run_program.hpp"
#include "lasting/lives.hpp"

namespace convnet {
namespace {

// Starting mpiexec takes most of a life's time: two ranks are struck less often.
const std::vector<Scenario> kScenarios{
    {"Sgd", 1, 24, {"--lr", "0.01", "--momentum", "0.9", "--weight-decay", "0.001"}},
    {"NesterovOneCycleReshuffled", 1, 24, {"--recipe", "onecycle", "--reshuffle"}},
    {"AdamWCosine",
     1,
     24,
     {"--optimizer", "adamw", "--lr", "0.002", "--schedule", "cosine", "--warmup", "0.1"}},
    {"StaticSharding", 2, 14, {"--recipe", "onecycle", "--sharding", "static", "--tail", "exact"}},
    {"MeanOfBuffers", 2, 14, {"--bn-buffers", "mean", "--lr", "0.01", "--momentum", "0.9"}},
};

int count_from_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

unsigned seed() {
  static const unsigned value = static_cast<unsigned>(
      count_from_environment("CONVNET_LASTING_SEED", static_cast<int>(std::random_device()() >> 1U)));
  return value;
}

// How often a run of this scenario is struck.
int blows(const Scenario& scenario) {
  return (count_from_environment("CONVNET_LASTING_KILLS", 50) * scenario.share + 99) / 100;
}

// The moments of that many blows: each kind comes up before one comes up again.
std::vector<Moment> random_moments(int count, std::mt19937& random) {
  std::array kinds{Moment::kAnyTime, Moment::kStart,   Moment::kProbe,   Moment::kTraining,  Moment::kWrite,
                   Moment::kSynced,  Moment::kRenamed, Moment::kPruning, Moment::kEvaluation};
  std::vector<Moment> moments;
  while (static_cast<int>(moments.size()) < count) {
    std::ranges::shuffle(kinds, random);
    moments.insert(moments.end(), kinds.begin(), kinds.end());
  }
  moments.resize(static_cast<std::size_t>(count));
  return moments;
}

class StruckRun : public testing::TestWithParam<Scenario> {
 protected:
  void SetUp() override { std::cout << "CONVNET_LASTING_SEED=" << seed() << "\n"; }

  // Strikes as often as asked for: a life that ends before its moment does not count.
  template <class Choose, class Check>
  void strike(const Choose& choose, const Check& check) {
    std::vector<Moment> moments = random_moments(blows(GetParam()), lives_.random());
    int early_ends = 0;
    while (!moments.empty() && !HasFailure()) {
      const Blow blow = choose(moments.back());
      const Ending ending = lives_.live(blow);
      check(blow, ending);
      if (ending.was_struck) {
        moments.pop_back();
      } else {
        ASSERT_LT(++early_ends, 10 + 3 * blows(GetParam())) << "it ends before it can be struck";
      }
    }
  }

  // Kills it while it writes, if chance has not done so: few blows need not have a write among them, and one
  // on the rank that does not write, or on the launcher, may reach the other too late.
  void kill_in_a_write() {
    constexpr int kTries = 20;  // each all but sure: a write takes many of the slow disk's pauses
    const auto count = [&] { return struck_in("write") + struck_in("between write and rename"); };
    for (int i = 0; i < kTries && count() == 0 && !HasFailure(); ++i) {
      lives_.live({SIGKILL, Moment::kWrite, Target::kAllRanks});
    }
    EXPECT_GE(count(), 1) << "none was killed in a write";
  }

  void let_it_end() {
    const Ending last = lives_.live({});
    EXPECT_EQ(last.exit_code, 0) << last.out << last.err;
  }

  template <class Value, std::size_t size>
  Value one_of(const std::array<Value, size>& values) {
    return values[std::uniform_int_distribution<std::size_t>(0, size - 1)(lives_.random())];
  }

  void print_phases() const {
    for (const auto& [phase, count] : lives_.phases()) {
      std::cout << "  struck in " << phase << ": " << count << "\n";
    }
  }

  int struck_in(const std::string& phase) const {
    const auto found = lives_.phases().find(phase);
    return found == lives_.phases().end() ? 0 : found->second;
  }

  Lives lives_{GetParam(), seed() + static_cast<unsigned>(GetParam().name.size())};
};

TEST_P(StruckRun, EndsWithTheSameWeightsHoweverOftenItIsKilled) {
  strike(
      [&](Moment moment) {
        const auto target = one_of<Target, 3>({Target::kOneRank, Target::kAllRanks, Target::kLauncher});
        return Blow{SIGKILL, moment, target};
      },
      [](const Blow&, const Ending& ending) {
        EXPECT_TRUE(!ending.was_struck || ending.exit_code != 0 || occurrences(ending.out, "complete") == 1)
            << ending.out;
      });
  kill_in_a_write();
  let_it_end();
  print_phases();
}

// What a life may come to that was told to stop.
void check_stop(const Blow& blow, const Ending& ending, const Lives& lives) {
  const std::string said = ending.out + ending.err;
  const bool is_training = occurrences(ending.out, ", Step [") > 0;
  switch (ending.exit_code) {
    case 0:
      EXPECT_EQ(occurrences(ending.out, "Training complete"), 1U) << said;
      return;
    case 75: {
      const std::string reason = blow.signal == SIGUSR1 ? "SIGUSR1" : "SIGTERM";
      EXPECT_EQ(occurrences(ending.out, "Stopped by " + reason + " after step " +
                                            std::to_string(lives.newest_step()) + " of 72, and saved"),
                1U)
          << said;
      EXPECT_EQ(lives.left_over(), 0);
      return;
    }
    default:
      if (ending.was_launcher_struck && blow.signal == SIGTERM) {
        return;  // mpiexec has killed its ranks: what it then returns is its own affair
      }
      EXPECT_FALSE(is_training) << "exit code " << ending.exit_code << "\n" << said;
      EXPECT_EQ(ending.exit_code, 128 + blow.signal) << said;
  }
}

TEST_P(StruckRun, SavesAndStopsWhenItIsToldToAndGoesOnLater) {
  strike(
      [&](Moment moment) {
        const Blow one{SIGTERM, moment, Target::kOneRank};
        const Blow all{SIGTERM, moment, Target::kAllRanks};
        const Blow launcher{SIGTERM, moment, Target::kLauncher};
        const Blow forwarded{SIGUSR1, moment, Target::kLauncher};
        return one_of<Blow, 4>({one, all, launcher, forwarded});
      },
      [&](const Blow& blow, const Ending& ending) { check_stop(blow, ending, lives_); });
  let_it_end();
  print_phases();
}

INSTANTIATE_TEST_SUITE_P(Lasting, StruckRun, testing::ValuesIn(kScenarios),
                         [](const auto& scenario) { return scenario.param.name; });

}  // namespace
}  // namespace convnet
