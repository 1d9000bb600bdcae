#include "train/trainer.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/commands.hpp"
#include "comm/launch.hpp"
#include "comm/together.hpp"
#include "convnet/error.hpp"
#include "train/option_names.hpp"

namespace convnet {
namespace {

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
      .add_option("--recipe", options.recipe,
                  "A named set of defaults, which other flags override: seed, the "
                  "PyTorch tutorial's run; onecycle, 99.3 % in 3 epochs")
      ->type_name("seed|onecycle")
      ->group(group);
  parser.add_option("--config", "Options from a file, a line each: batch = 200. Flags override it")
      ->type_name("FILE.toml")
      ->check(CLI::ExistingFile)
      ->group(group);
  parser.add_option("--epochs", options.epochs, "Passes over the training set")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N")
      ->group(group);
  parser
      .add_option("--max-steps", options.max_steps, "End the run after N steps in all; 0: after the epochs")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->group(group);
  parser.add_option("--batch", options.batch, "Samples a rank and step")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N")
      ->group(group);
  parser.add_option("--seed", options.seed, "Of initial weights and sample order; the low 32 bits count")
      ->type_name("N")
      ->group(group);
}

void add_optimizer_options(CLI::App& parser, TrainOptions& options) {
  const std::string group = "Optimiser";
  const auto rate = CLI::NonNegativeNumber;
  const auto share = CLI::Range(0.0, 0.999999);
  add_choice(parser, "--optimizer", options.optimizer, kOptimizerNames, "Update rule", group);
  parser.add_option("--lr", options.learning_rate, "Learning rate; with a schedule its greatest")
      ->check(rate)
      ->type_name("RATE")
      ->group(group);
  parser.add_option("--momentum", options.momentum, "Of SGD; 0: none")
      ->check(share)
      ->type_name("[0,1)")
      ->group(group);
  parser.add_flag("--nesterov,!--no-nesterov", options.nesterov, "Nesterov's momentum")->group(group);
  parser.add_option("--weight-decay", options.weight_decay, "SGD: added to the gradient; AdamW: decoupled")
      ->check(rate)
      ->type_name("RATE")
      ->group(group);
  add_choice(parser, "--schedule", options.schedule, kScheduleNames,
             "Of the learning rate: constant; step, a tenth after each third of the run; cosine, down to 0; "
             "onecycle, up and down in straight lines",
             group);
  parser.add_option("--warmup", options.warmup, "Share of the steps in which the rate rises to its greatest")
      ->check(share)
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
      ->check(CLI::Range(0, 4096))
      ->type_name("N")
      ->group(machine);
  const std::string output = "Output";
  parser.add_option("--log", options.log, "Write JSON lines to this file")
      ->type_name("FILE.jsonl")
      ->group(output);
  parser.add_flag("--log-steps,!--no-log-steps", options.log_steps, "Log every step")->group(output);
  parser.add_option("--log-every", options.log_every, "Print and log the loss every N steps")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N")
      ->group(output);
}

// Gives the options of a file to those flags that the command line left alone.
void apply_config_file(CLI::App& parser, const std::string& path) {
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_file(path)) {
    CLI::Option* option = parser.get_option_no_throw("--" + item.name);
    if (option == nullptr || item.name == "config" || item.name == "help" || !item.parents.empty()) {
      throw Error(ExitCode::kUsage, path + ": there is no option named " + item.fullname());
    }
    if (option->count() == 0) {
      option->add_result(item.inputs);
    }
  }
}

// Recipe, then file, then flags: each overrides the one before.
void resolve_options(CLI::App& parser, TrainOptions& options) {
  if (const CLI::Option* config = parser.get_option("--config"); config->count() > 0) {
    apply_config_file(parser, config->as<std::string>());
  }
  const CLI::Option* recipe = parser.get_option("--recipe");
  options = recipe_options(recipe->count() > 0 ? recipe->as<std::string>() : options.recipe);
  for (CLI::Option* option : parser.get_options()) {
    if (option->count() > 0 && option->get_name() != "--help") {
      option->run_callback();
    }
  }
  check_options(options);
}

void run_train(CLI::App& parser, TrainOptions& options) {
  const MpiSession session;
  MpiCommunicator world;
  check_launch(launch_facts(process_environment()), world.size());
  together(world, [&] { resolve_options(parser, options); });
  Trainer(options, world).run();
}

}  // namespace

Command add_train_command(CLI::App& program) {
  CLI::App* parser =
      program.add_subcommand("train", "Train the network, one replica a rank, and evaluate it");
  const auto options = std::make_shared<TrainOptions>();
  parser->option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_run_options(*parser, *options);
  add_optimizer_options(*parser, *options);
  add_data_options(*parser, *options);
  add_machine_options(*parser, *options);
  return {parser, [parser, options] { run_train(*parser, *options); }};
}

}  // namespace convnet
