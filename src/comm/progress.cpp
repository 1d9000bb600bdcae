#include "comm/progress.hpp"

#include <utility>

namespace convnet {

void Progress::enter_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  mark_.step = step;
  ++mark_.changes;
}

void Progress::enter_phase(const char* phase) {
  const std::lock_guard lock(mutex_);
  mark_.phase = phase;
  ++mark_.changes;
}

const char* Progress::set_call(const char* name) {
  const std::lock_guard lock(mutex_);
  ++mark_.changes;
  return std::exchange(mark_.call, name);
}

Progress::Mark Progress::snapshot() const {
  const std::lock_guard lock(mutex_);
  return mark_;
}

}  // namespace convnet
