#include "train/train_options.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "convnet/error.hpp"
#include "train/option_names.hpp"

namespace convnet {

TrainOptions recipe_options(const std::string& name) {
  TrainOptions options;
  options.recipe = name;
  if (name == "onecycle" || name == "large") {
    options.epochs = 3;
    options.reshuffle = true;
    options.learning_rate = 0.05;
    options.momentum = 0.9;
    options.nesterov = true;
    options.weight_decay = 5e-4;
    options.schedule = ScheduleKind::kOneCycle;
    options.warmup = 0.2;
    if (name == "large") {
      options.learning_rate = 0.283;  // 0.8 at 8 ranks
      options.learning_rate_scale = LearningRateScale::kSqrt;
      options.warmup = 0.3;
      options.clip_norm = 0.5;
      options.batch_norm = BatchNorm::kSync;
    }
  } else if (name != "seed") {
    throw Error(ExitCode::kUsage,
                "--recipe " + name + ": there is no such recipe; expected seed, onecycle or large");
  }
  return options;
}

void check_options(const TrainOptions& options) {
  if (options.data.empty()) {
    throw Error(ExitCode::kUsage, "--data is missing: expected an HDF5 file made by `convnet convert`");
  }
  const bool is_recipes_own = recipe_options(options.recipe).nesterov;
  const std::string remedy =
      is_recipes_own ? "; recipe " + options.recipe + " sets them: add --momentum 0 --no-nesterov" : "";
  if (options.nesterov && options.momentum == 0.0) {
    throw Error(ExitCode::kUsage, "--nesterov needs --momentum above 0" + remedy);
  }
  if (options.optimizer == Optimizer::kAdamW && (options.momentum != 0.0 || options.nesterov)) {
    throw Error(ExitCode::kUsage,
                "--momentum and --nesterov belong to --optimizer sgd, not to adamw" + remedy);
  }
  if (options.cuda.share_gpu && options.cuda.comm != CommLibrary::kMpi) {
    throw Error(ExitCode::kUsage, "--share-gpu needs --comm mpi: NCCL refuses two ranks on one GPU");
  }
  if (options.cuda.kernels == Kernels::kCudnn && options.batch_norm == BatchNorm::kSync) {
    throw Error(ExitCode::kUsage,
                "--bn sync needs --kernels fused: cuDNN's batch norm sees one rank's batch");
  }
  if (options.cuda.steps_per_launch > 1 && options.cuda.graph == CudaGraph::kOff) {
    throw Error(ExitCode::kUsage,
                "--steps-per-launch above 1 needs --cuda-graph on or auto: a graph is what launches them");
  }
  if (options.log_steps && options.log.empty()) {
    throw Error(ExitCode::kUsage, "--log-steps needs --log FILE.jsonl to write to");
  }
}

void check_options_of(const BackendChoice& backend, const TrainOptions& options) {
  if (backend.device == Device::kCuda) {
    return;
  }
  const nlohmann::ordered_json given = to_json(options);
  const nlohmann::ordered_json defaults = to_json(TrainOptions{});
  for (const char* name : {"precision", "kernels", "autotune", "cuda-graph", "steps-per-launch", "comm",
                           "buckets", "comm-timeout", "share-gpu"}) {
    if (given[name] != defaults[name]) {
      throw Error(ExitCode::kUsage, "--" + std::string(name) +
                                        " is for the CUDA back end, and this run is on the CPU (" +
                                        backend.reason + ")");
    }
  }
}

nlohmann::ordered_json to_json(const TrainOptions& options) {
  return {{"recipe", options.recipe},
          {"data", options.data},
          {"epochs", options.epochs},
          {"max-steps", options.max_steps},
          {"batch", options.batch},
          {"seed", options.seed},
          {"reshuffle", options.reshuffle},
          {"sharding", name_of(options.sharding, kShardingNames)},
          {"tail", name_of(options.tail, kTailNames)},
          {"optimizer", name_of(options.optimizer, kOptimizerNames)},
          {"lr", options.learning_rate},
          {"momentum", options.momentum},
          {"nesterov", options.nesterov},
          {"weight-decay", options.weight_decay},
          {"clip-norm", options.clip_norm},
          {"schedule", name_of(options.schedule, kScheduleNames)},
          {"warmup", options.warmup},
          {"lr-scale", name_of(options.learning_rate_scale, kLearningRateScaleNames)},
          {"bn", name_of(options.batch_norm, kBatchNormNames)},
          {"bn-buffers", name_of(options.batch_norm_buffers, kBatchNormBufferNames)},
          {"device", name_of(options.device, kDeviceNames)},
          {"threads", options.threads},
          {"watchdog-seconds", options.watchdog_seconds},
          {"precision", name_of(options.cuda.precision, kPrecisionNames)},
          {"kernels", name_of(options.cuda.kernels, kKernelNames)},
          {"deterministic", options.cuda.deterministic},
          {"autotune", options.cuda.autotune},
          {"cuda-graph", name_of(options.cuda.graph, kCudaGraphNames)},
          {"steps-per-launch", options.cuda.steps_per_launch},
          {"comm", name_of(options.cuda.comm, kCommLibraryNames)},
          {"buckets", options.cuda.buckets},
          {"comm-timeout", options.cuda.comm_timeout},
          {"share-gpu", options.cuda.share_gpu},
          {"checkpoint-dir", options.checkpoint_dir},
          {"checkpoint-every", to_string(options.checkpoint_every)},
          {"keep", options.keep},
          {"resume", options.resume},
          {"override", options.may_override},
          {"time-limit", options.time_limit},
          {"on-nonfinite", name_of(options.on_nonfinite, kOnNonfiniteNames)},
          {"log", options.log},
          {"log-steps", options.log_steps},
          {"log-every", options.log_every}};
}

std::int64_t total_steps(const TrainOptions& options, std::int64_t steps_per_epoch) {
  const std::int64_t steps = options.epochs * steps_per_epoch;
  return options.max_steps > 0 ? std::min(steps, options.max_steps) : steps;
}

UpdateRule update_rule(const TrainOptions& options) {
  return {.optimizer = options.optimizer,
          .momentum = options.momentum,
          .nesterov = options.nesterov,
          .weight_decay = options.weight_decay,
          .clip_norm = options.clip_norm};
}

double peak_learning_rate(const TrainOptions& options, int world_size) {
  switch (options.learning_rate_scale) {
    case LearningRateScale::kLinear:
      return options.learning_rate * world_size;
    case LearningRateScale::kSqrt:
      return options.learning_rate * std::sqrt(static_cast<double>(world_size));
    default:
      return options.learning_rate;
  }
}

}  // namespace convnet
