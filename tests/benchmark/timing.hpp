#pragma once

#include <algorithm>
#include <vector>

#include "base/clock.hpp"

namespace convnet {

constexpr int kGroups = 10;

// Milliseconds that an action took, once for each group of repetitions, in rising order.
struct Timing {
  std::vector<double> groups;

  double median() const { return (groups[(groups.size() - 1) / 2] + groups[groups.size() / 2]) / 2.0; }
  double minimum() const { return groups.front(); }
};

template <class Action>
Timing time_groups(int repetitions, const Action& action) {
  Timing timing;
  for (int group = 0; group < kGroups; ++group) {
    const Stopwatch stopwatch;
    for (int i = 0; i < repetitions; ++i) {
      action();
    }
    timing.groups.push_back(1e3 * stopwatch.seconds() / repetitions);
  }
  std::ranges::sort(timing.groups);
  return timing;
}

}  // namespace convnet
