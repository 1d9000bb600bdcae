#pragma once

#include <chrono>
#include <string>

namespace convnet {

// Seconds since it was made or last restarted.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  void restart() { start_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// "0:00:26.12": hours, minutes, seconds, hundredths.
std::string format_duration(double seconds);

}  // namespace convnet
