#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "compute/backend.hpp"
#include "compute/update_rule.hpp"
#include "convnet/sampler.hpp"
#include "train/intervals.hpp"
#include "train/schedule.hpp"

namespace convnet {

enum class LearningRateScale { kNone, kLinear, kSqrt };  // times 1, the world size, its square root
enum class BatchNorm { kLocal, kSync };         // statistics of a rank's batch, or of all ranks' batches
enum class BatchNormBuffers { kRank0, kMean };  // whose running statistics are evaluated and kept
enum class OnNonfinite { kStop, kSkip };        // of a step: end the run, or leave its update out

// All that a training run depends on. The defaults are the recipe `seed`: the PyTorch tutorial's own run.
struct TrainOptions {
  std::string recipe = "seed";
  std::string data;

  int epochs = 2;
  std::int64_t max_steps = 0;  // the run ends after so many steps in all; 0: after the epochs
  int batch = 100;             // samples a rank and step
  std::uint64_t seed = 0;
  bool reshuffle = false;  // the tutorial never calls set_epoch: every epoch has the order of the first
  Sharding sharding = Sharding::kGlobal;
  Tail tail = Tail::kPad;

  Optimizer optimizer = Optimizer::kSgd;
  double learning_rate = 1e-4;
  double momentum = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
  double clip_norm = 0.0;  // greatest norm of the gradient; 0: any
  ScheduleKind schedule = ScheduleKind::kConstant;
  double warmup = 0.0;  // share of all steps
  LearningRateScale learning_rate_scale = LearningRateScale::kNone;

  BatchNorm batch_norm = BatchNorm::kLocal;
  BatchNormBuffers batch_norm_buffers = BatchNormBuffers::kRank0;

  Device device = Device::kAuto;
  int threads = 0;             // of a rank; 0: its share of the cores
  int watchdog_seconds = 300;  // without progress until the job ends; 0: no watchdog
  CudaOptions cuda;

  std::string checkpoint_dir;  // empty: no checkpoints
  Interval checkpoint_every;
  int keep = 3;               // newest checkpoints that are kept
  std::string resume;         // "latest", a checkpoint's file, or empty: start anew
  bool may_override = false;  // options may differ from the checkpoint's
  double time_limit = 0.0;    // seconds after which the run shall have saved and ended; 0: none
  OnNonfinite on_nonfinite = OnNonfinite::kStop;

  std::string log;         // file of JSON lines; empty: none
  bool log_steps = false;  // every step goes to the log, not only those that go to the screen
  int log_every = 100;
};

// The defaults that a recipe stands for: "seed", "onecycle" or "large". Throws Error (kUsage) for any other
// name.
TrainOptions recipe_options(const std::string& name);

// Throws Error (kUsage) unless the options make sense together.
void check_options(const TrainOptions& options);

// Throws Error (kUsage) unless the back end chosen can do what the options ask of it.
void check_options_of(const BackendChoice& backend, const TrainOptions& options);

// Every option by the name of its flag, in the order of --help: for the screen, the log, and the comparison
// of ranks.
nlohmann::ordered_json to_json(const TrainOptions& options);

// Steps of a whole run.
std::int64_t total_steps(const TrainOptions& options, std::int64_t steps_per_epoch);

// The rule that the options ask for; its learning rate and step are those of the first step.
UpdateRule update_rule(const TrainOptions& options);

// The greatest learning rate of the run: the one asked for, scaled for the world size.
double peak_learning_rate(const TrainOptions& options, int world_size);

}  // namespace convnet
