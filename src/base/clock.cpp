#include "base/clock.hpp"

#include <fmt/format.h>

#include <cmath>

namespace convnet {

std::string format_duration(double seconds) {
  const long long hundredths = std::llround(seconds * 100.0);
  return fmt::format("{}:{:02}:{:02}.{:02}", hundredths / 360000, hundredths / 6000 % 60,
                     hundredths / 100 % 60, hundredths % 100);
}

}  // namespace convnet
