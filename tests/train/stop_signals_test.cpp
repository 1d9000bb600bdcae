#include "train/stop_signals.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

namespace convnet {
namespace {

constexpr int kDone = 75;

// Each in a process of its own, as signals are the whole process's.
[[noreturn]] void be_told_to_stop_once_over(bool was_held) {
  {
    StopSignals signals;
    if (was_held) {
      signals.hold();
    }
  }
  kill(getpid(), SIGTERM);
  std::_Exit(kDone);
}

[[noreturn]] void be_told_to_stop(int signal) {
  StopSignals signals;
  signals.hold();
  kill(getpid(), signal);
  while (signals.received() == 0) {
    std::this_thread::yield();
  }
  std::_Exit(signals.received());
}

TEST(StopSignalsDeathTest, KeepsASignalForWhoeverAsks) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    EXPECT_EXIT(be_told_to_stop(signal), testing::ExitedWithCode(signal), "");
  }
}

TEST(StopSignalsDeathTest, ALateSignalDoesNotTakeTheExitCodeAwayOfARunThatIsOver) {
  EXPECT_EXIT(be_told_to_stop_once_over(true), testing::ExitedWithCode(kDone), "");
}

TEST(StopSignalsDeathTest, ASignalEndsAProcessThatDoesNotKeepIt) {
  EXPECT_EXIT(be_told_to_stop_once_over(false), testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace convnet
