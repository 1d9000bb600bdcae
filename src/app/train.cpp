#include "train/trainer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "app/commands.hpp"
#include "app/train_flags.hpp"
#include "comm/launch.hpp"
#include "comm/together.hpp"
#include "comm/watchdog.hpp"
#include "convnet/error.hpp"
#include "train/folder_lock.hpp"

namespace convnet {
namespace {

// Gives the options of a file to those flags that the command line left alone.
void apply_config_file(CLI::App& parser, const std::string& path) {
  std::set<std::string> seen;
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_file(path)) {
    CLI::Option* option = parser.get_option_no_throw("--" + item.name);
    const bool is_option = option != nullptr && item.name != "config" && item.name != "help" &&
                           item.parents.empty() && !item.name.starts_with("no-");
    if (!is_option) {
      throw Error(ExitCode::kUsage, fmt::format("{}: there is no option named {}", path, item.fullname()));
    }
    if (!seen.insert(item.name).second || item.inputs.size() != 1 || item.inputs.front().empty()) {
      throw Error(ExitCode::kUsage, fmt::format("{}: {} is not given one value, once", path, item.name));
    }
    const std::string& value = item.inputs.front();
    const bool is_switch = option->get_expected_max() == 0;
    if (is_switch && value != "true" && value != "false") {
      throw Error(ExitCode::kUsage,
                  fmt::format("{}: {} is {}: expected true or false", path, item.name, value));
    }
    if (option->count() == 0) {
      option->add_result(value);
    }
  }
}

// The recipe's options, and what was given beside it.
void apply_flags(CLI::App& parser, TrainOptions& options) {
  const CLI::Option* recipe = parser.get_option("--recipe");
  options = recipe_options(recipe->count() > 0 ? recipe->as<std::string>() : TrainOptions().recipe);
  for (CLI::Option* option : parser.get_options()) {
    if (option->count() > 0 && option->get_name() != "--help") {
      option->run_callback();
    }
  }
}

// Recipe, then file, then flags: each overrides the one before.
void resolve_options(CLI::App& parser, TrainOptions& options) {
  const CLI::Option* config = parser.get_option("--config");
  const std::string config_path = config->count() > 0 ? config->as<std::string>() : "";
  try {
    if (!config_path.empty()) {
      apply_config_file(parser, config_path);
    }
    apply_flags(parser, options);
  } catch (const CLI::Error& complaint) {  // of a value in the file: the flags have been checked
    throw Error(ExitCode::kUsage, config_path + ": " + complaint.what());
  }
}

// What the command line and the file leave open is as in the checkpoint; what they say otherwise is an error.
void take_options_from(const ResumePoint& point, CLI::App& parser, TrainOptions& options) {
  const auto saved = nlohmann::ordered_json::parse(point.checkpoint.options);
  // Where another recipe is given (--override), what it sets otherwise than the checkpoint's comes from it.
  const bool gives_recipe = parser.get_option("--recipe")->count() > 0;
  const auto new_recipe = to_json(recipe_options(options.recipe));
  const auto old_recipe = to_json(recipe_options(saved.value("recipe", options.recipe)));
  for (const auto& [name, value] : saved.items()) {
    CLI::Option* option = parser.get_option_no_throw("--" + name);
    const bool is_left_open = option != nullptr && option->count() == 0;
    const bool is_the_recipes =
        gives_recipe && new_recipe.contains(name) && new_recipe[name] != old_recipe[name];
    if (is_left_open && is_inherited(name) && !is_the_recipes) {
      option->add_result(value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  apply_flags(parser, options);
  require_same_run(options, point);
}

// An option that does nothing without another one: somebody would trust in it.
void require_companions(CLI::App& parser, const TrainOptions& options) {
  const auto is_given = [&](const char* flag) { return parser.get_option(flag)->count() > 0; };
  const auto require = [](bool is_useless, const char* option, const char* companion) {
    if (is_useless) {
      throw Error(ExitCode::kUsage, fmt::format("{} does nothing without {}", option, companion));
    }
  };
  const bool is_saved = !options.checkpoint_dir.empty();
  require(is_given("--checkpoint-every") && !is_saved, "--checkpoint-every", "--checkpoint-dir");
  require(is_given("--keep") && !is_saved, "--keep", "--checkpoint-dir");
  require(options.time_limit > 0.0 && !is_saved, "--time-limit", "--checkpoint-dir");
  require(options.may_override && options.resume.empty(), "--override", "--resume");
}

// Held by rank 0; null elsewhere. Collective.
std::unique_ptr<FolderLock> lock_folder(const std::string& folder, const StopSignals& signals,
                                        MpiCommunicator& world) {
  const auto on_wait = [&] {
    world.progress().enter_phase("waiting for the checkpoint folder");
    if (signals.received() != 0) {
      throw Error(ExitCode::kStopped, "told to stop while another run writes to " + folder);
    }
  };
  std::unique_ptr<FolderLock> lock;
  together(world, [&] {
    if (world.rank() == 0) {
      lock = std::make_unique<FolderLock>(folder, on_wait);
    }
  });
  return lock;
}

ExitCode run_train(CLI::App& parser, TrainOptions& options) {
  StopSignals signals;  // before MPI starts threads
  const CLI::Option* folder = parser.get_option("--checkpoint-dir");
  if (folder->count() > 0 && !folder->as<std::string>().empty()) {
    signals.hold();  // early: what comes while the run is set up stops it at one of its first steps
  }
  // Before MPI starts, too, which changes what the environment says of the launcher.
  const LaunchFacts facts = launch_facts(process_environment());
  check_pmi(facts);
  const MpiSession session;
  MpiCommunicator world;
  check_launch(facts, world.size());
  together(world, [&] {
    resolve_options(parser, options);
    require_companions(parser, options);
  });
  agreed_options(options, world);
  const Watchdog watchdog(world, std::chrono::seconds(options.watchdog_seconds),
                          [&signals] { return signals.received() == SIGTERM; });
  if (world.size() > 1 && options.watchdog_seconds > 0) {
    signals.leave_time_for_last_words();
  }
  std::unique_ptr<FolderLock> lock;
  if (!options.checkpoint_dir.empty()) {
    signals.hold();
    lock = lock_folder(options.checkpoint_dir, signals, world);
  }
  const std::optional<ResumePoint> point = find_resume_point(options, world);
  together(world, [&] {
    if (point) {
      take_options_from(*point, parser, options);
    }
    check_options(options);
  });
  Trainer trainer(options, world, &signals, point);
  together(world, [&] {
    if (point && world.rank() == 0) {
      put_unusable_aside(*point);
    }
  });
  return trainer.run();
}

}  // namespace

Command add_train_command(CLI::App& program) {
  CLI::App* parser =
      program.add_subcommand("train", "Train the network, one replica a rank, and evaluate it");
  const auto options = std::make_shared<TrainOptions>();
  parser->option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_train_flags(*parser, *options);
  return {parser, [parser, options] { return run_train(*parser, *options); }};
}

}  // namespace convnet
