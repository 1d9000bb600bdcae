#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/mpi_communicator.hpp"
#include "compute/backend.hpp"
#include "convnet/error.hpp"
#include "convnet/sampler.hpp"
#include "train/agreed_setup.hpp"
#include "train/epoch_part.hpp"
#include "train/reporter.hpp"
#include "train/resume.hpp"
#include "train/run_keeper.hpp"
#include "train/schedule.hpp"
#include "train/train_options.hpp"

namespace convnet {

// A whole training run on this rank, from the data file to the trained network. It knows no back end, only a
// replica. Every function is collective.
class Trainer {
 public:
  // Reads the data and makes the replica, in the state of `point` where the run goes on from there. Throws
  // Error on every rank if the ranks disagree on options, program version or data, if the data cannot be
  // used, or if checkpoints could not be written. `signals`, where given, outlives the trainer.
  Trainer(const TrainOptions& options, MpiCommunicator& world, StopSignals* signals = nullptr,
          const std::optional<ResumePoint>& point = std::nullopt);

  // Returns kOk when all epochs are done, kStopped if the run was told to stop and has been saved. Throws
  // Error (kData) on every rank if a loss or gradient is not finite.
  ExitCode run();

  // The state as it stands, with the running statistics that are evaluated and kept.
  ModelState state();

 private:
  enum class EpochEnd { kDone, kOutOfSteps, kStopped };

  // Shows what the run is, and returns this rank's number of threads.
  int introduce(const std::optional<ResumePoint>& point);
  void prepare_saving();
  void load_dataset();
  void make_own_replica(int threads);
  void take_up(const std::optional<ResumePoint>& point);

  std::int64_t steps_left() const;
  bool is_complete() const;
  EpochEnd train_epoch();
  void train_step(std::int64_t step);
  double schedule_step(std::int64_t step) const;
  void report_step(std::int64_t step, std::int64_t images);
  void require_finite(const StepResult& result);

  void save();
  Checkpoint checkpoint_of(ModelState state) const;
  void report_saved();
  void finish_saving();

  void share_batch_norm_buffers();
  EvalResult evaluate_rows(std::span<const std::int32_t> rows);
  void evaluate();
  std::string agreed_weights_sha256();

  TrainOptions options_;
  MpiCommunicator& world_;
  MpiCommunicator node_;
  Reporter reporter_;
  BackendChoice backend_;
  AgreedData data_;
  Network network_;
  StateLayout layout_;
  Sampler sampler_;
  RunKeeper keeper_;
  std::string versions_;  // as checkpoints have them
  Position position_;
  std::int64_t optimizer_start_;  // steps done when the moments began
  std::int64_t total_steps_;      // done when the run ends
  Schedule schedule_;
  UpdateRule rule_;
  RowRange test_rows_;  // that this rank evaluates
  Dataset dataset_;
  std::unique_ptr<Replica> replica_;

  std::optional<EpochPart> epoch_;     // the one under way, or the last
  bool are_buffers_shared_ = false;    // batch norm's: all ranks have those that are evaluated
  std::int64_t updates_left_out_ = 0;  // of steps that were not finite, up to the last evaluation
  std::optional<Position> saved_;      // what the newest checkpoint of this run has
  std::string stop_reason_;
};

}  // namespace convnet
