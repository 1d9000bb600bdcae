#pragma once

#include <cstdint>
#include <string>

namespace convnet {

enum class IntervalUnit { kSteps, kEpochs, kMinutes };

// How often something is done.
struct Interval {
  std::int64_t count = 1;  // >= 1
  IntervalUnit unit = IntervalUnit::kEpochs;
};

// "500steps", "1epoch", "10 minutes"; a number alone counts steps. Throws Error (kUsage).
Interval parse_interval(const std::string& text);

// "500steps"
std::string to_string(const Interval& interval);

// Seconds: "90s", "90m", "2h"; or as Slurm's squeue prints a job's time left: "M:S", "H:M:S", "D-H:M:S", and
// UNLIMITED, NOT_SET or INVALID, which are 0: none. Throws Error (kUsage).
double parse_duration(const std::string& text);

}  // namespace convnet
