#include "train/resume.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/read_file.hpp"
#include "comm/together.hpp"
#include "convnet/error.hpp"
#include "train/checkpoint_folder.hpp"

namespace convnet {
namespace {

// What a run is: an option of these that differs makes another one of it.
constexpr std::array kOfTheRun{"recipe",    "epochs",   "max-steps",    "batch",     "seed",
                               "reshuffle", "sharding", "tail",         "optimizer", "lr",
                               "momentum",  "nesterov", "weight-decay", "clip-norm", "schedule",
                               "warmup",    "lr-scale", "bn",           "bn-buffers"};
// What it goes on with unless told otherwise.
constexpr std::array kHabits{"data", "on-nonfinite", "checkpoint-every", "keep"};

template <std::size_t N>
bool contains(const std::array<const char*, N>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// A file's bytes, known to be a good checkpoint, and the newer ones that are none.
struct Found {
  std::string path;
  std::vector<std::byte> bytes;
  std::vector<std::filesystem::path> unusable;
};

// The newest good one of a folder.
Found find_latest(const CheckpointFolder& folder, const std::string& name) {
  Found found;
  for (const auto& path : folder.checkpoints()) {
    try {
      found.bytes = read_file(path);
      parse_checkpoint(found.bytes, path.string());
      found.path = path.string();
      return found;
    } catch (const Error& error) {
      if (error.code() != ExitCode::kData) {
        throw;
      }
      spdlog::warn("{}: looking for an older one", error.what());
      found.unusable.push_back(path);
    }
  }
  if (!found.unusable.empty()) {
    throw Error(ExitCode::kData,
                fmt::format("{}: found {} checkpoint{}, none of them good, expected one to resume from", name,
                            found.unusable.size(), found.unusable.size() == 1 ? "" : "s"));
  }
  spdlog::info("{} holds no checkpoint yet: starting from the beginning", name);
  return {};
}

Found find_named(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    const bool is_folder = std::filesystem::is_directory(path, ignored);
    throw Error(ExitCode::kIo, fmt::format("--resume {}: found {}, expected a checkpoint's file, or latest",
                                           path, is_folder ? "a folder" : "no such file"));
  }
  Found found{path, read_file(path)};
  parse_checkpoint(found.bytes, path);
  return found;
}

// A folder belongs to one run: it is empty, or the run goes on from its newest checkpoint.
void require_own_folder(const TrainOptions& options) {
  const std::vector<std::filesystem::path> all = CheckpointFolder(options.checkpoint_dir).checkpoints();
  std::error_code ignored;
  if (all.empty() || std::filesystem::equivalent(all.front(), options.resume, ignored)) {
    return;
  }
  throw Error(
      ExitCode::kUsage,
      fmt::format("--checkpoint-dir {}: found checkpoints of another run, or newer ones, up to {}: go on "
                  "from there by --resume latest, or give another folder",
                  options.checkpoint_dir, all.front().filename().string()));
}

Found find(const TrainOptions& options) {
  if (options.resume == "latest") {
    if (options.checkpoint_dir.empty()) {
      throw Error(ExitCode::kUsage, "--resume latest needs --checkpoint-dir DIR to look in");
    }
    return find_latest(CheckpointFolder(options.checkpoint_dir), options.checkpoint_dir);
  }
  if (!options.checkpoint_dir.empty()) {
    require_own_folder(options);
  }
  return options.resume.empty() ? Found() : find_named(options.resume);
}

void share(Found& found, MpiCommunicator& world) {
  std::array<std::uint64_t, 2> sizes{found.path.size(), found.bytes.size()};
  world.broadcast(std::as_writable_bytes(std::span(sizes)), 0);
  found.path.resize(sizes[0]);
  found.bytes.resize(sizes[1]);
  world.broadcast(std::as_writable_bytes(std::span(found.path)), 0);
  world.broadcast(found.bytes, 0);
}

// Whether another number of epochs, or of steps, would change the learning rates.
bool rates_depend_on_length(const TrainOptions& options) {
  return options.schedule != ScheduleKind::kConstant || options.warmup != 0.0;
}

}  // namespace

std::optional<ResumePoint> find_resume_point(const TrainOptions& options, MpiCommunicator& world) {
  Found found;
  together(world, [&] {
    if (world.rank() == 0) {
      found = find(options);
    }
  });
  if (options.resume.empty()) {
    return std::nullopt;
  }
  share(found, world);
  if (found.path.empty()) {
    return std::nullopt;
  }
  return ResumePoint{found.path, parse_checkpoint(found.bytes, found.path), found.unusable};
}

void put_unusable_aside(const ResumePoint& point) {
  for (const std::filesystem::path& path : point.unusable) {
    const auto aside = CheckpointFolder(path.parent_path()).put_aside(path);
    spdlog::warn("{} is now {}", path.string(), aside.string());
  }
}

bool is_inherited(const std::string& option) {
  return contains(kOfTheRun, option) || contains(kHabits, option);
}

void require_same_run(const TrainOptions& options, const ResumePoint& point) {
  const auto before = nlohmann::ordered_json::parse(point.checkpoint.options);
  const auto now = to_json(options);
  std::vector<std::string> contradictions;
  for (const auto& [name, value] : now.items()) {
    const bool is_length = name == "epochs" || name == "max-steps";
    const bool counts = contains(kOfTheRun, name) && (!is_length || rates_depend_on_length(options));
    if (counts && before.contains(name) && before[name] != value) {
      contradictions.push_back(fmt::format("--{} is {}, but {} in the checkpoint{}", name, value.dump(),
                                           before[name].dump(),
                                           is_length ? " (the schedule depends on it)" : ""));
    }
  }
  if (!contradictions.empty() && !options.may_override) {
    throw Error(
        ExitCode::kUsage,
        fmt::format("{}: {}. Leave out what differs (it is taken from the checkpoint), or add --override",
                    point.path, fmt::join(contradictions, "; ")));
  }
}

void require_same_length(const TrainOptions& options, SamplerOptions sampling, const ResumePoint& point) {
  const auto ends_the_run = [&](int world_size) {
    sampling.rank = 0;
    sampling.world_size = world_size;
    return options.max_steps > 0 && options.max_steps < options.epochs * Sampler(sampling).steps_per_epoch();
  };
  const int before = point.checkpoint.world_size;
  const int now = sampling.world_size;
  if (now != before && rates_depend_on_length(options) && (ends_the_run(before) || ends_the_run(now))) {
    throw Error(
        ExitCode::kUsage,
        fmt::format("{}: --max-steps {} ends the schedule of the learning rate, and counts steps of {} "
                    "ranks: found {}, expected as many, or --max-steps 0 --override",
                    point.path, options.max_steps, before, now));
  }
}

void require_same_data(const std::string& identity, const Network& network, const TrainOptions& options,
                       const ResumePoint& point) {
  const Network& before = point.checkpoint.network;
  if (to_string(before.input) != to_string(network.input) || before.classes != network.classes) {
    throw Error(
        ExitCode::kData,
        fmt::format("{}: found a network for images of {} and {} classes, expected {} and {}, which {} "
                    "has",
                    point.path, to_string(before.input), before.classes, to_string(network.input),
                    network.classes, options.data));
  }
  if (identity != point.checkpoint.data && !options.may_override) {
    throw Error(ExitCode::kUsage, fmt::format("{}: --data {} is other data ({}) than in the checkpoint ({}). "
                                              "Expected the same, or --override",
                                              point.path, options.data, identity, point.checkpoint.data));
  }
}

Position start_position(const ResumePoint& point, const std::string& data) {
  const Position& position = point.checkpoint.position;
  if (data == point.checkpoint.data) {
    return position;
  }
  return {.epoch = position.epoch, .global_step = position.global_step};
}

}  // namespace convnet
