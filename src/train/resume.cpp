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

// A file's bytes, known to be a good checkpoint.
struct Found {
  std::string path;
  std::vector<std::byte> bytes;
};

// The newest good one of a folder. Those that are damaged make way only once there is a good one.
Found find_latest(const CheckpointFolder& folder, const std::string& name) {
  std::vector<std::filesystem::path> damaged;
  for (const auto& path : folder.checkpoints()) {
    try {
      Found found{path.string(), read_file(path)};
      parse_checkpoint(found.bytes, found.path);
      for (const auto& bad : damaged) {
        spdlog::warn("{} is now {}", bad.string(), folder.put_aside(bad).string());
      }
      return found;
    } catch (const Error& error) {
      if (error.code() != ExitCode::kData) {
        throw;
      }
      spdlog::warn("{}: looking for an older one", error.what());
      damaged.push_back(path);
    }
  }
  if (!damaged.empty()) {
    throw Error(ExitCode::kData,
                fmt::format("{}: found {} checkpoint{}, none of them good, expected one to resume from", name,
                            damaged.size(), damaged.size() == 1 ? "" : "s"));
  }
  spdlog::info("{} holds no checkpoint yet: starting from the beginning", name);
  return {};
}

Found find_named(const std::string& path) {
  Found found{path, read_file(path)};
  parse_checkpoint(found.bytes, path);
  return found;
}

// What a new run writes must not be taken for older, or newer, than what is there already.
void require_no_other_run(const TrainOptions& options, const Found& found) {
  const std::vector<std::filesystem::path> all = CheckpointFolder(options.checkpoint_dir).checkpoints();
  if (all.empty()) {
    return;
  }
  if (found.path.empty()) {
    throw Error(ExitCode::kUsage,
                fmt::format("--checkpoint-dir {}: found checkpoints of an earlier run, up to {}: go on from "
                            "there by --resume latest, or expected another folder",
                            options.checkpoint_dir, all.front().filename().string()));
  }
  const std::int64_t step = parse_checkpoint(found.bytes, found.path).position.global_step;
  if (all.front() > CheckpointFolder(options.checkpoint_dir).file_of(step)) {
    throw Error(ExitCode::kUsage,
                fmt::format("--checkpoint-dir {}: found {}, which is newer than what this run resumes from "
                            "({}): expected another folder",
                            options.checkpoint_dir, all.front().filename().string(), found.path));
  }
}

Found find(const TrainOptions& options) {
  Found found;
  if (options.resume == "latest") {
    return find_latest(CheckpointFolder(options.checkpoint_dir), options.checkpoint_dir);
  }
  if (!options.resume.empty()) {
    found = find_named(options.resume);
  }
  if (!options.checkpoint_dir.empty()) {
    require_no_other_run(options, found);
  }
  return found;
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
  return ResumePoint{found.path, parse_checkpoint(found.bytes, found.path)};
}

bool is_inherited(const std::string& option) {
  constexpr std::array kInherited{"recipe", "data",      "epochs",   "max-steps",    "batch",
                                  "seed",   "reshuffle", "sharding", "tail",         "optimizer",
                                  "lr",     "momentum",  "nesterov", "weight-decay", "schedule",
                                  "warmup", "lr-scale",  "bn",       "bn-buffers"};
  return std::ranges::find(kInherited, option) != kInherited.end();
}

void require_same_run(const TrainOptions& options, const ResumePoint& point) {
  const auto before = nlohmann::ordered_json::parse(point.checkpoint.options);
  const auto now = to_json(options);
  std::vector<std::string> contradictions;
  for (const auto& [name, value] : now.items()) {
    const bool is_length = name == "epochs" || name == "max-steps";
    const bool counts =
        is_inherited(name) && name != "data" && (!is_length || rates_depend_on_length(options));
    if (counts && before.contains(name) && before[name] != value) {
      contradictions.push_back(
          fmt::format("--{} is {}, but {} in the checkpoint", name, value.dump(), before[name].dump()));
    }
  }
  if (!contradictions.empty() && !options.may_override) {
    throw Error(
        ExitCode::kUsage,
        fmt::format("{}: {}. Leave out what differs (it is taken from the checkpoint), or add --override",
                    point.path, fmt::join(contradictions, "; ")));
  }
}

void require_same_data(const std::string& identity, const Network& network, const TrainOptions& options,
                       const ResumePoint& point) {
  const Network& before = point.checkpoint.network;
  if (before.input.size() != network.input.size() || to_string(before.input) != to_string(network.input) ||
      before.classes != network.classes) {
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

}  // namespace convnet
