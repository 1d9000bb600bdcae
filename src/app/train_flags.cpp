#include "app/train_flags.hpp"

#include <charconv>
#include <limits>
#include <map>
#include <string>

#include "convnet/error.hpp"
#include "train/option_names.hpp"

namespace convnet {
namespace {

// What CLI11's own checks let through: NaN, and what a number type cannot hold.
CLI::Validator number_from(double least, double limit, const std::string& expected) {
  return CLI::Validator(
      [=](const std::string& text) {
        double value = 0.0;
        const bool is_number = CLI::detail::lexical_cast(text, value);
        return is_number && value >= least && value < limit ? std::string() : text + " is not " + expected;
      },
      "");
}

CLI::Validator rate() {
  return number_from(0.0, std::numeric_limits<double>::infinity(), "a number of 0 or more");
}

CLI::Validator share() {
  return number_from(0.0, 1.0, "a number from 0 to below 1");
}

CLI::Validator whole_number(int least) {
  constexpr int kMost = 1'000'000;
  return CLI::Range(least, kMost).description("");
}

CLI::Validator seed_number() {
  return CLI::Validator(
      [](const std::string& text) {
        std::uint64_t seed = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
        const bool is_seed = error == std::errc() && end == text.data() + text.size();
        return is_seed ? std::string() : text + " is not a whole number from 0 to 2^64 - 1";
      },
      "");
}

// An option whose value is one of a few words.
template <class Enum, std::size_t N>
void add_choice(CLI::App& parser, const std::string& flag, Enum& value, const Names<Enum, N>& names,
                const std::string& help, const std::string& group) {
  std::map<std::string, Enum> choices;
  std::string words;
  for (const auto& [name, named] : names) {
    choices.emplace(name, named);
    words += (words.empty() ? "" : "|") + std::string(name);
  }
  parser.add_option(flag, value, help)
      ->transform(CLI::CheckedTransformer(choices).description(""))
      ->type_name(words)
      ->default_str(std::string(name_of(value, names)))
      ->group(group);
}

void add_run_options(CLI::App& parser, TrainOptions& options) {
  const std::string group = "Run";
  parser.add_option("--data", options.data, "Data file made by `convnet convert`")
      ->type_name("FILE.h5")
      ->group(group);
  parser
      .add_option(
          "--recipe", options.recipe,
          "A named set of defaults, which other flags override: seed, the PyTorch tutorial's run; onecycle, "
          "SGD with Nesterov momentum up and down one cycle; large, the same at a greater rate, with clipped "
          "gradients and synchronised batch norm, for large batches")
      ->type_name("seed|onecycle|large")
      ->group(group);
  parser.add_option("--config", "Options from a file, a line each: batch = 200. Flags override it")
      ->type_name("FILE.toml")
      ->check(CLI::ExistingFile.description(""))
      ->group(group);
  parser.add_option("--epochs", options.epochs, "Passes over the training set")
      ->check(whole_number(1))
      ->type_name("N")
      ->group(group);
  parser
      .add_option("--max-steps", options.max_steps, "End the run after N steps in all; 0: after the epochs")
      ->check(whole_number(0))
      ->type_name("N")
      ->group(group);
  parser.add_option("--batch", options.batch, "Samples a rank and step")
      ->check(whole_number(1))
      ->type_name("N")
      ->group(group);
  parser.add_option("--seed", options.seed, "Of initial weights and sample order; the low 32 bits count")
      ->check(seed_number())
      ->type_name("N")
      ->group(group);
}

void add_optimizer_options(CLI::App& parser, TrainOptions& options) {
  const std::string group = "Optimiser";
  add_choice(parser, "--optimizer", options.optimizer, kOptimizerNames, "Update rule", group);
  parser.add_option("--lr", options.learning_rate, "Learning rate; with a schedule its greatest")
      ->check(rate())
      ->type_name("RATE")
      ->group(group);
  parser.add_option("--momentum", options.momentum, "Of SGD; 0: none")
      ->check(share())
      ->type_name("[0,1)")
      ->group(group);
  parser.add_flag("--nesterov,!--no-nesterov", options.nesterov, "Nesterov's momentum")->group(group);
  parser.add_option("--weight-decay", options.weight_decay, "SGD: added to the gradient; AdamW: decoupled")
      ->check(rate())
      ->type_name("RATE")
      ->group(group);
  parser.add_option("--clip-norm", options.clip_norm, "Greatest norm of the gradient; 0: any")
      ->check(rate())
      ->type_name("NORM")
      ->group(group);
  add_choice(parser, "--schedule", options.schedule, kScheduleNames,
             "Of the learning rate: constant; step, a tenth after each third of the run; cosine, down to 0; "
             "onecycle, up and down in straight lines",
             group);
  parser.add_option("--warmup", options.warmup, "Share of the steps in which the rate rises to its greatest")
      ->check(share())
      ->type_name("[0,1)")
      ->group(group);
  add_choice(parser, "--lr-scale", options.learning_rate_scale, kLearningRateScaleNames,
             "Multiply the learning rate by 1, the number of ranks, or its square root", group);
}

void add_data_options(CLI::App& parser, TrainOptions& options) {
  const std::string group = "Data parallelism";
  parser.add_flag("--reshuffle,!--no-reshuffle", options.reshuffle, "Another sample order each epoch")
      ->group(group);
  add_choice(parser, "--sharding", options.sharding, kShardingNames,
             "global: a rank draws from the whole set, as PyTorch's DistributedSampler; static: it reads "
             "only its own "
             "contiguous part of the file",
             group);
  add_choice(parser, "--tail", options.tail, kTailNames,
             "pad: repeat samples until all ranks have equally many; exact: each sample once", group);
  add_choice(parser, "--bn", options.batch_norm, kBatchNormNames,
             "Batch norm statistics over a rank's batch, or over all ranks' batches", group);
  add_choice(parser, "--bn-buffers", options.batch_norm_buffers, kBatchNormBufferNames,
             "Running statistics to evaluate with, where they differ: rank 0's, or the mean of all", group);
}

void add_machine_options(CLI::App& parser, TrainOptions& options) {
  const std::string machine = "Machine";
  add_choice(parser, "--device", options.device, kDeviceNames, "Where to compute", machine);
  parser
      .add_option("--threads", options.threads,
                  "CPU threads a rank; 0: OMP_NUM_THREADS, else its share of the cores")
      ->check(whole_number(0))
      ->type_name("N")
      ->group(machine);
  parser
      .add_option("--watchdog-seconds", options.watchdog_seconds,
                  "End the job after so many seconds in which no rank makes progress; 0: never")
      ->check(whole_number(0))
      ->type_name("N")
      ->group(machine);
}

void add_gpu_options(CLI::App& parser, TrainOptions& options) {
  const std::string group = "GPU (--device cuda)";
  CudaOptions& cuda = options.cuda;
  add_choice(
      parser, "--precision", cuda.precision, kPrecisionNames,
      "fp32: true float32; tf32: float32 through tensor cores; bf16: activations, with float32 weights",
      group);
  add_choice(parser, "--kernels", cuda.kernels, kKernelNames,
             "Batch norm, ReLU, pooling and softmax: kernels of our own, or cuDNN's one by one", group);
  parser
      .add_flag("--deterministic,!--no-deterministic", cuda.deterministic,
                "The same bits again in the same run")
      ->group(group);
  parser
      .add_flag("--autotune,!--no-autotune", cuda.autotune,
                "Measure cuDNN's convolution algorithms at the start")
      ->group(group);
  add_choice(parser, "--cuda-graph", cuda.graph, kCudaGraphNames, "Launch each step as one captured graph",
             group);
  parser
      .add_option("--steps-per-launch", cuda.steps_per_launch,
                  "Steps that are launched as one captured graph; at most 64")
      ->check(CLI::Range(1, kMostStepsPerLaunch))
      ->type_name("N")
      ->group(group);
  add_choice(parser, "--comm", cuda.comm, kCommLibraryNames,
             "Sum gradients by NCCL, or by MPI through the host's memory", group);
  parser.add_option("--buckets", cuda.buckets, "Parts in which gradients are summed while backward goes on")
      ->check(whole_number(1))
      ->type_name("N")
      ->group(group);
  parser.add_option("--comm-timeout", cuda.comm_timeout, "Seconds that NCCL may wait for other ranks")
      ->check(whole_number(1))
      ->type_name("N")
      ->group(group);
  parser.add_flag("--share-gpu,!--no-share-gpu", cuda.share_gpu, "Let ranks share a GPU, with --comm mpi")
      ->group(group);
}

// A value that a function of text to Value reads.
template <class Value>
CLI::Option* add_parsed(CLI::App& parser, const std::string& flag, Value& value,
                        Value (*parse)(const std::string&), const std::string& help) {
  return parser.add_option_function<std::string>(
      flag,
      [flag, &value, parse](const std::string& text) {
        try {
          value = parse(text);
        } catch (const Error& error) {
          throw CLI::ValidationError(flag, error.what());
        }
      },
      help);
}

void add_checkpoint_options(CLI::App& parser, TrainOptions& options) {
  const std::string group = "Checkpoints";
  parser
      .add_option("--checkpoint-dir", options.checkpoint_dir,
                  "Save the run there: as often as asked for, at its end, and when it is told to stop")
      ->type_name("DIR")
      ->group(group);
  add_parsed(parser, "--checkpoint-every", options.checkpoint_every, parse_interval,
             "How often to save: 500steps, 1epoch, 10minutes")
      ->type_name("N[steps|epochs|minutes]")
      ->default_str(to_string(options.checkpoint_every))
      ->group(group);
  parser.add_option("--keep", options.keep, "Newest checkpoints to keep")
      ->check(whole_number(1))
      ->type_name("K")
      ->group(group);
  parser
      .add_option(
          "--resume", options.resume,
          "Go on from a checkpoint: a file, or the newest good one of --checkpoint-dir, if there is one. "
          "Options that are not given are taken from it")
      ->type_name("latest|FILE")
      ->group(group);
  parser
      .add_flag("--override,!--no-override", options.may_override,
                "Let options and data differ from the checkpoint's")
      ->group(group);
  add_parsed(
      parser, "--time-limit", options.time_limit, parse_duration,
      "Save and stop before so much time has passed: 90m, 2h, 1:30:00. SLURM_JOB_END_TIME is heeded too")
      ->type_name("TIME")
      ->default_str("0")
      ->group(group);
  add_choice(parser, "--on-nonfinite", options.on_nonfinite, kOnNonfiniteNames,
             "When loss or gradient is not finite: stop the run, or skip that update", group);
}

void add_output_options(CLI::App& parser, TrainOptions& options) {
  const std::string output = "Output";
  parser.add_option("--log", options.log, "Write JSON lines to this file")
      ->type_name("FILE.jsonl")
      ->group(output);
  parser.add_flag("--log-steps,!--no-log-steps", options.log_steps, "Log every step")->group(output);
  parser.add_option("--log-every", options.log_every, "Print and log the loss every N steps")
      ->check(whole_number(1))
      ->type_name("N")
      ->group(output);
}

}  // namespace

void add_train_flags(CLI::App& parser, TrainOptions& options) {
  add_run_options(parser, options);
  add_optimizer_options(parser, options);
  add_data_options(parser, options);
  add_machine_options(parser, options);
  add_gpu_options(parser, options);
  add_checkpoint_options(parser, options);
  add_output_options(parser, options);
}

}  // namespace convnet
