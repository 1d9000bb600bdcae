#pragma once

#include <atomic>
#include <csignal>
#include <thread>

#include "base/clock.hpp"

namespace convnet {

// SIGTERM, SIGINT and SIGUSR1, taken by a thread of its own instead of by a handler. It must be made before
// other threads are, so that none of them takes the signals. Until hold() a signal ends the process as it
// would without; from then on it is kept for whoever asks. A second SIGINT ends the process at once (130).
// What comes when this object is gone again does nothing, if it has held signals and no exception took it
// away.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void hold() { is_held_ = true; }

  // Lets SIGTERM end the process only after a moment, for the watchdog's last words: mpirun sends it to all
  // ranks when one was killed.
  void leave_time_for_last_words() { leaves_time_ = true; }

  // Since it was made, as the program starts.
  double seconds_since_start() const { return since_start_.seconds(); }

  // The first signal that came; 0: none yet.
  int received() const { return received_; }

 private:
  void take(int signal);

  Stopwatch since_start_;
  sigset_t signals_{};
  sigset_t mask_before_{};
  std::atomic<bool> is_held_ = false;
  std::atomic<bool> leaves_time_ = false;
  std::atomic<int> received_ = 0;
  int interrupts_ = 0;  // SIGINTs so far
  std::jthread taker_;
};

}  // namespace convnet
