// A job in which rank 1 is killed at step 3. The others have a second between mpiexec's SIGTERM and its
// SIGKILL.
#include <signal.h>

#include <array>
#include <chrono>
#include <thread>

#include "comm/watchdog.hpp"

int main() {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, nullptr);
  const convnet::MpiSession session;
  convnet::MpiCommunicator world;
  convnet::Watchdog watchdog(world, std::chrono::seconds(60));
  std::thread([&] {
    int signal = 0;
    sigwait(&term, &signal);
    watchdog.told_to_end();
  }).detach();
  world.progress().enter_phase("training");
  std::array<float, 100> values{};
  for (int step = 1;; ++step) {
    world.progress().enter_step(step);
    if (world.rank() == 1 && step == 3) {
      raise(SIGKILL);
    }
    world.all_reduce_sum(values);
  }
}
