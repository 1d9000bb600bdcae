#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "comm/shared_flags.hpp"
#include "train/checkpoint_writer.hpp"
#include "train/stop_signals.hpp"
#include "train/train_options.hpp"

namespace convnet {

// What is to be done at a step boundary, on all ranks alike.
struct Verdict {
  bool save = false;
  std::string stop_reason;  // "SIGTERM", "the time limit"; empty: go on
};

// Keeps a run from being lost: decides with the other ranks when to save and when to stop, and has rank 0
// write. Without --checkpoint-dir there is nothing to decide, and it does nothing.
class RunKeeper {
 public:
  // `signals`, where given, outlives the keeper. Collective. Throws Error on every rank: kUsage if
  // SLURM_JOB_END_TIME is no time.
  RunKeeper(const TrainOptions& options, MpiCommunicator& world, StopSignals* signals);

  bool is_keeping() const { return flags_ != nullptr; }

  // Makes sure that a checkpoint of so many bytes can be written; only rank 0 asks how many. Collective;
  // throws Error (kIo) on every rank if it cannot.
  void prepare(const std::function<std::uint64_t()>& bytes);

  // The first step begins: from here on steps and intervals are timed.
  void begin();

  // Collective, once a step. Throws Error (kIo), on rank 0 alone, if a checkpoint could not be written.
  Verdict after_step(std::int64_t global_step);

  // Whether less than a minute is left of the time limit, so that the run should be saved before what takes
  // long. The same on all ranks.
  bool is_late() const { return is_late_; }

  // Whether to save after this epoch.
  bool wants_epoch(int epochs_done) const;

  // Begins to write, on rank 0; elsewhere it does nothing. Throws as after_step.
  void write(Checkpoint checkpoint);
  // Waits for all that was begun. Collective. Throws as after_step.
  void finish();

  // What has been written since the last call.
  std::optional<Written> take_written();

 private:
  std::uint32_t own_flags();
  double seconds_left() const;
  void collect(bool wait);

  TrainOptions options_;
  MpiCommunicator& world_;
  StopSignals* signals_;
  std::unique_ptr<SharedFlags> flags_;
  std::optional<CheckpointWriter> writer_;
  std::optional<Written> written_;
  double time_limit_ = 0.0;  // seconds since since_start_; 0: none
  Stopwatch since_start_;
  bool is_late_ = false;
  Stopwatch since_save_;
  Stopwatch since_step_;
  double longest_step_ = 0.0;  // seconds from one step boundary to the next
  double longest_save_ = 0.0;
};

}  // namespace convnet
