#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/json_lines.hpp"
#include "comm/ranks.hpp"
#include "compute/backend.hpp"
#include "convnet/checkpoint.hpp"
#include "convnet/dataset.hpp"
#include "train/checkpoint_writer.hpp"
#include "train/train_options.hpp"

namespace convnet {

// What a run is, for its first lines.
struct RunFacts {
  std::vector<RankFacts> ranks;
  std::vector<std::string> devices;  // of each rank: "cpu", or "cuda:1", the number among the visible GPUs
  std::vector<int> threads;          // of each rank
  BackendChoice backend;
  DataFileInfo data;
  std::int64_t total_steps = 0;
  std::string resumed_from;  // a checkpoint's file; empty: the run starts anew
  int saved_by = 0;          // ranks that made the checkpoint
  Position position;         // where it starts
};

struct StepReport {
  int epoch = 1;                 // from 1
  std::int64_t step = 1;         // in the epoch, from 1
  std::int64_t global_step = 1;  // in the run, from 1
  double loss = 0.0;             // mean over the samples of all ranks
  double loss_rank0 = 0.0;       // mean over rank 0's samples: what PyTorch's script prints
  double learning_rate = 0.0;
  bool is_finite = true;  // else its update was left out
};

struct EpochReport {
  int epoch = 1;
  std::int64_t test_correct = 0;
  std::int64_t test_total = 0;
  double test_loss = 0.0;             // mean
  std::int64_t updates_left_out = 0;  // of steps that were not finite, since the evaluation before
};

// The program and its libraries, by name.
nlohmann::ordered_json library_versions(const BackendChoice& backend);

// What a person and a program see of a run: lines on stdout, a progress line where stderr is a terminal, and
// JSON lines. On ranks other than 0 it does nothing.
class Reporter {
 public:
  Reporter(const TrainOptions& options, int rank);

  // Starts the file of JSON lines, if there is to be one, or goes on with it. Throws Error: kUsage if that
  // would overwrite the data, kIo if it cannot be written.
  void open_log(bool is_resumed);

  void start(const RunFacts& facts);

  // Whether somebody sees this step, so that its result is worth fetching. The same on all ranks.
  bool wants_step(std::int64_t step, std::int64_t global_step) const;

  // `steps` are those of the whole epoch, with those done before this run took it up.
  void start_epoch(std::int64_t steps);
  // Keeps the progress line going. `images` as in step().
  void show_progress(std::int64_t global_step, std::int64_t images);
  // `images` are those of all ranks since the start of the epoch.
  void step(const StepReport& report, std::int64_t images);
  // `images` are those of all ranks in the epoch, without evaluation.
  void end_training_epoch(std::int64_t images);
  void end_epoch(const EpochReport& report);
  void saved(const Written& checkpoint);
  // Instead of the run's end: it has been saved, because of `reason`.
  void stopped(const std::string& reason, const Position& position);
  // Instead of training: the run was over before it started.
  void nothing_left(const Position& position);
  void end(const std::string& weights_sha256, std::int64_t steps);

 private:
  // Whether the tutorial's line is printed for this step: every so many, the last of an epoch and of the run.
  bool prints_step(std::int64_t step, std::int64_t global_step) const;
  void write(const nlohmann::ordered_json& event);
  void clear_progress();

  TrainOptions options_;
  bool is_speaker_;
  bool is_terminal_;
  std::optional<JsonLines> log_;
  std::int64_t steps_in_epoch_ = 0;
  std::int64_t first_step_ = 0;  // steps that were done before this run started
  std::int64_t total_steps_ = 0;
  Stopwatch run_;
  Stopwatch epoch_;
  Stopwatch since_progress_;
  double epoch_seconds_ = 0.0;  // of training, without evaluation
  double images_per_second_ = 0.0;
};

}  // namespace convnet
