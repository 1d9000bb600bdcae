#include "train/stop_signals.hpp"

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <iostream>

#include "convnet/error.hpp"

namespace convnet {

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    sigaddset(&signals_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &mask_before_);
  taker_ = std::jthread([this](const std::stop_token& end) {
    constexpr timespec kPause{0, 50'000'000};
    while (!end.stop_requested()) {
      const int signal = sigtimedwait(&signals_, nullptr, &kPause);
      if (signal > 0) {
        take(signal);
      }
    }
  });
}

StopSignals::~StopSignals() {
  taker_.request_stop();
  taker_.join();
  // A late signal shall not take its exit code away of a run that is over; one that fails may be ended
  // anyhow.
  if (!is_held_ || std::uncaught_exceptions() > 0) {
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  }
}

void StopSignals::take(int signal) {
  int none = 0;
  received_.compare_exchange_strong(none, signal);
  if (!is_held_) {
    if (signal == SIGTERM && leaves_time_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(800));  // mpirun kills after 1 s
    }
    std::signal(signal, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    std::raise(signal);
  }
  if (signal == SIGINT && ++interrupts_ == 1) {
    std::cerr << "convnet: interrupted: saving and stopping at the next step; a second time ends at once\n"
              << std::flush;
  } else if (signal == SIGINT) {
    std::cerr << "convnet: interrupted twice: ending at once; what was saved before stands\n" << std::flush;
    constexpr int kInterrupted = 128 + SIGINT;
    std::_Exit(kInterrupted);
  }
}

}  // namespace convnet
