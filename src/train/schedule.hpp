#pragma once

#include <cstdint>

namespace convnet {

enum class ScheduleKind {
  kConstant,
  kStep,      // a tenth after each third of the steps
  kCosine,    // half a cosine down to 0 (Loshchilov and Hutter 2017, arXiv:1608.03983, without restarts)
  kOneCycle,  // torch.optim.lr_scheduler.OneCycleLR with linear legs, div_factor 25, final_div_factor 1e4
};

// The learning rate of every step of a run.
class Schedule {
 public:
  // `peak` is the greatest rate; `warmup`, in [0, 1), the share of `total_steps` in which the rate rises to
  // it: for kOneCycle from peak / 25, else from near 0.
  Schedule(ScheduleKind kind, double peak, double warmup, std::int64_t total_steps);

  // Of step 0 .. total_steps - 1. A run that was resumed at another world size has fractions of steps.
  double learning_rate(double step) const;

 private:
  double one_cycle(double step) const;

  ScheduleKind kind_;
  double peak_;
  double warmup_;
  double total_steps_;
};

}  // namespace convnet
