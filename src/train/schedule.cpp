#include "train/schedule.hpp"

#include <cmath>
#include <numbers>

namespace convnet {

Schedule::Schedule(ScheduleKind kind, double peak, double warmup, std::int64_t total_steps)
    : kind_(kind), peak_(peak), warmup_(warmup), total_steps_(static_cast<double>(total_steps)) {}

double Schedule::one_cycle(double step) const {
  const double start = peak_ / 25.0;
  const double finish = start / 1e4;
  const double top = warmup_ * total_steps_ - 1.0;  // the step at which the rate is greatest
  if (top > 0.0 && step <= top) {
    return std::lerp(start, peak_, step / top);
  }
  const double descent = total_steps_ - 1.0 - top;
  return std::lerp(peak_, finish, (step - top) / descent);
}

double Schedule::learning_rate(double step) const {
  if (kind_ == ScheduleKind::kOneCycle) {
    return one_cycle(step);
  }
  const double rise = std::round(warmup_ * total_steps_);
  if (step < rise) {
    return peak_ * (step + 1.0) / rise;
  }
  const double progress = (step - rise) / (total_steps_ - rise);
  switch (kind_) {
    case ScheduleKind::kStep:
      return peak_ * std::pow(0.1, std::floor(3.0 * progress));
    case ScheduleKind::kCosine:
      return peak_ * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    default:
      return peak_;
  }
}

}  // namespace convnet
