#include "train/reporter.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "comm/mpi_communicator.hpp"
#include "convnet/error.hpp"
#include "data/hdf5_handle.hpp"
#include "train/option_names.hpp"

namespace convnet {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kRanksShown = 16;  // of a large run the first ones tell enough

void print_ranks(const RunFacts& facts) {
  fmt::print("{:>6}  {:<20}  {:>10}  {:<6}  {:>7}  {:>5}\n", "Rank", "Host", "Local rank", "Device",
             "Threads", "Cores");
  for (std::size_t i = 0; i < std::min(facts.ranks.size(), kRanksShown); ++i) {
    const RankFacts& rank = facts.ranks[i];
    fmt::print("{:>6}  {:<20}  {:>10}  {:<6}  {:>7}  {:>5}\n", rank.rank, rank.host, rank.local_rank,
               facts.devices[i], facts.threads[i], rank.cores);
  }
  if (facts.ranks.size() > kRanksShown) {
    fmt::print("   ... and {} more\n", facts.ranks.size() - kRanksShown);
  }
}

void warn_of_crowding(const std::vector<RankFacts>& ranks, const std::vector<int>& threads) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (threads[i] > ranks[i].cores) {
      spdlog::warn(
          "rank {} on {} has {} threads but is bound to {} core{}: mpirun --bind-to none, or fewer --threads",
          i, ranks[i].host, threads[i], ranks[i].cores, ranks[i].cores == 1 ? "" : "s");
    }
  }
}

void print_options(const ordered_json& options) {
  constexpr std::size_t kColumns = 3;
  std::size_t column = 0;
  std::string line;
  for (const auto& [name, value] : options.items()) {
    const bool is_path = name == "data" || name == "log" || name == "checkpoint-dir" || name == "resume";
    if (is_path) {
      continue;  // paths are long, and those that matter have lines of their own
    }
    line += fmt::format("  {:<18}{:<12}", name, value.is_string() ? value.get<std::string>() : value.dump());
    if (++column % kColumns == 0) {
      fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
      line.clear();
    }
  }
  fmt::print("{}\n\n", line.substr(0, line.find_last_not_of(' ') + 1));
}

}  // namespace

ordered_json library_versions(const BackendChoice& backend) {
  return {{"convnet", CONVNET_VERSION},
          {"backend", backend.library},
          {"mpi", mpi_library()},
          {"hdf5", hdf5_version()}};
}

Reporter::Reporter(const TrainOptions& options, int rank)
    : options_(options), is_speaker_(rank == 0), is_terminal_(isatty(STDERR_FILENO) != 0) {}

void Reporter::open_log(bool is_resumed) {
  if (!is_speaker_ || options_.log.empty()) {
    return;
  }
  std::error_code ignored;
  if (std::filesystem::equivalent(options_.log, options_.data, ignored)) {
    throw Error(ExitCode::kUsage,
                "--log " + options_.log + " is the data file itself: expected another file");
  }
  log_.emplace(options_.log, is_resumed ? JsonLines::Mode::kGoOn : JsonLines::Mode::kReplace);
}

void Reporter::write(const ordered_json& event) {
  if (log_) {
    log_->write(event);
  }
}

void Reporter::start(const RunFacts& facts) {
  first_step_ = facts.position.global_step;
  total_steps_ = facts.total_steps;
  if (!is_speaker_) {
    return;
  }
  const ordered_json options = to_json(options_);
  fmt::print("convnet {}: {} rank{} on {} ({})\n\n", CONVNET_VERSION, facts.ranks.size(),
             facts.ranks.size() == 1 ? "" : "s", name_of(facts.backend.device, kDeviceNames),
             facts.backend.reason);
  print_ranks(facts);
  fmt::print("\nData: {}: {}, {} training and {} test images of {}, {} classes\n\n", options_.data,
             facts.data.name, facts.data.train_count, facts.data.test_count, to_string(facts.data.shape),
             facts.data.classes);
  print_options(options);
  if (!facts.resumed_from.empty()) {
    const bool is_same_size = facts.saved_by == static_cast<int>(facts.ranks.size());
    fmt::print("Resuming {}: epoch {}, {} steps done in it, {} in all{}{}\n\n", facts.resumed_from,
               facts.position.epoch, facts.position.step, facts.position.global_step,
               is_same_size ? "" : fmt::format("; saved by {} ranks, so that steps differ", facts.saved_by),
               options_.checkpoint_dir.empty() ? "; not saved from here on (no --checkpoint-dir)" : "");
  }
  std::fflush(stdout);
  warn_of_crowding(facts.ranks, facts.threads);
  ordered_json event{{"event", "run_start"}};
  event.update(options);
  event["resumed_from"] = facts.resumed_from;
  event["global_step"] = facts.position.global_step;
  event["world_size"] = facts.ranks.size();
  event["device"] = name_of(facts.backend.device, kDeviceNames);
  if (facts.backend.device == Device::kCuda) {
    event["gpu"] = facts.backend.gpu.name;
  }
  event["threads"] = facts.threads;
  event["versions"] = library_versions(facts.backend);
  event["data_sources"] = ordered_json::object();
  for (const SourceFile& source : facts.data.sources) {
    event["data_sources"][source.name] = source.sha256;
  }
  write(event);
}

bool Reporter::prints_step(std::int64_t step, std::int64_t global_step) const {
  return step % options_.log_every == 0 || step == steps_in_epoch_ || global_step == total_steps_;
}

bool Reporter::wants_step(std::int64_t step, std::int64_t global_step) const {
  return options_.log_steps || prints_step(step, global_step);
}

void Reporter::start_epoch(std::int64_t steps) {
  steps_in_epoch_ = steps;
  epoch_.restart();
}

void Reporter::step(const StepReport& report, std::int64_t images) {
  if (!is_speaker_) {
    return;
  }
  const double rate = static_cast<double>(images) / epoch_.seconds();
  if (prints_step(report.step, report.global_step)) {
    clear_progress();
    fmt::print("Epoch [{}/{}], Step [{}/{}], Loss: {:.4f}{}\n", report.epoch, options_.epochs, report.step,
               steps_in_epoch_, report.loss, report.is_finite ? "" : ", update left out");
    std::fflush(stdout);
  }
  write({{"event", "step"},
         {"epoch", report.epoch},
         {"step", report.step},
         {"global_step", report.global_step},
         {"loss", report.loss},
         {"loss_rank0", report.loss_rank0},
         {"lr", report.learning_rate},
         {"finite", report.is_finite},
         {"images_per_s", rate}});
}

void Reporter::show_progress(std::int64_t global_step, std::int64_t images) {
  constexpr double kRedrawSeconds = 0.2;
  if (!is_speaker_ || !is_terminal_ || since_progress_.seconds() < kRedrawSeconds) {
    return;
  }
  since_progress_.restart();
  const double rate = static_cast<double>(images) / epoch_.seconds();
  const double seconds_left = run_.seconds() / static_cast<double>(global_step - first_step_) *
                              static_cast<double>(total_steps_ - global_step);
  fmt::print(stderr, "\r\033[K{:3}%  {:.0f} images/s  {} left", 100 * global_step / total_steps_, rate,
             format_duration(seconds_left));
}

void Reporter::clear_progress() {
  if (is_terminal_) {
    fmt::print(stderr, "\r\033[K");
  }
}

void Reporter::end_training_epoch(std::int64_t images) {
  epoch_seconds_ = epoch_.seconds();
  images_per_second_ = static_cast<double>(images) / epoch_seconds_;
}

void Reporter::end_epoch(const EpochReport& report) {
  if (!is_speaker_) {
    return;
  }
  const double accuracy = static_cast<double>(report.test_correct) / static_cast<double>(report.test_total);
  clear_progress();
  fmt::print("Epoch [{}/{}], Test accuracy: {:.2f} % ({}/{}), Test loss: {:.4f}, {:.0f} images/s\n",
             report.epoch, options_.epochs, 100.0 * accuracy, report.test_correct, report.test_total,
             report.test_loss, images_per_second_);
  std::fflush(stdout);
  if (report.updates_left_out > 0) {
    spdlog::warn("epoch {}: {} updates left out, because loss or gradient was not finite", report.epoch,
                 report.updates_left_out);
  }
  write({{"event", "epoch_end"},
         {"epoch", report.epoch},
         {"test_correct", report.test_correct},
         {"test_total", report.test_total},
         {"test_accuracy", accuracy},
         {"test_loss", report.test_loss},
         {"updates_left_out", report.updates_left_out},
         {"images_per_s", images_per_second_},
         {"seconds", epoch_seconds_}});
}

void Reporter::saved(const Written& checkpoint) {
  if (!is_speaker_) {
    return;
  }
  clear_progress();
  fmt::print("Saved {} in {:.2f} s\n", checkpoint.path, checkpoint.seconds);
  std::fflush(stdout);
  write({{"event", "checkpoint"},
         {"path", checkpoint.path},
         {"global_step", checkpoint.global_step},
         {"bytes", checkpoint.bytes},
         {"seconds", checkpoint.seconds}});
}

void Reporter::stopped(const std::string& reason, const Position& position) {
  if (!is_speaker_) {
    return;
  }
  clear_progress();
  fmt::print("Stopped by {} after step {} of {}, and saved: --resume latest goes on from there\n", reason,
             position.global_step, total_steps_);
  std::fflush(stdout);
  write({{"event", "stopped"},
         {"reason", reason},
         {"epoch", position.epoch},
         {"step", position.step},
         {"global_step", position.global_step}});
}

void Reporter::nothing_left(const Position& position) {
  if (is_speaker_) {
    fmt::print("Nothing is left to train: {} steps are done, and --epochs {}{} asks for no more\n",
               position.global_step, options_.epochs,
               options_.max_steps > 0 ? fmt::format(" --max-steps {}", options_.max_steps) : "");
  }
}

void Reporter::end(const std::string& weights_sha256, std::int64_t steps) {
  if (!is_speaker_) {
    return;
  }
  const double seconds = run_.seconds();
  fmt::print("Training complete in: {}\nWeights SHA-256: {}\n", format_duration(seconds), weights_sha256);
  std::fflush(stdout);
  write({{"event", "run_end"}, {"weights_sha256", weights_sha256}, {"seconds", seconds}, {"steps", steps}});
}

}  // namespace convnet
