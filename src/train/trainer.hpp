#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/mpi_communicator.hpp"
#include "compute/backend.hpp"
#include "convnet/sampler.hpp"
#include "train/reporter.hpp"
#include "train/schedule.hpp"
#include "train/train_options.hpp"

namespace convnet {

// A whole training run on this rank, from the data file to the trained network. It knows no back end, only a
// replica. Every function is collective.
class Trainer {
 public:
  // Reads the data and makes the replica. Throws Error on every rank if the ranks disagree on options,
  // program version or data, or if the data cannot be used.
  Trainer(const TrainOptions& options, MpiCommunicator& world);

  void run();

  // The state as it stands, with the running statistics that are evaluated and kept.
  ModelState state();

 private:
  // Shows what the run is, and returns this rank's number of threads.
  int introduce();
  void load_dataset();
  void train_epoch(int epoch);
  void evaluate(int epoch);
  void share_batch_norm_buffers();
  void require_finite(int epoch, std::int64_t step, const StepResult& result);
  std::string agreed_weights_sha256();

  TrainOptions options_;
  MpiCommunicator& world_;
  MpiCommunicator node_;
  Reporter reporter_;
  BackendChoice backend_;
  DataFileInfo data_info_;
  Network network_;
  Sampler sampler_;
  std::int64_t total_steps_;
  Schedule schedule_;
  RowRange test_rows_;  // that this rank evaluates
  Dataset dataset_;
  std::unique_ptr<Replica> replica_;
  std::int64_t global_step_ = 0;
};

}  // namespace convnet
