#include "train/run_keeper.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>

#include "comm/together.hpp"
#include "convnet/error.hpp"

namespace convnet {
namespace {

// What a rank may say at a step boundary.
constexpr std::uint32_t kSave = 1;
constexpr std::uint32_t kTimeIsUp = 2;
constexpr std::uint32_t kTerminate = 4;
constexpr std::uint32_t kInterrupt = 8;
constexpr std::uint32_t kUser = 16;
constexpr std::uint32_t kLate = 32;

struct StopFlag {
  std::uint32_t flag;
  int signal;  // 0: none
  std::string_view name;
};

constexpr std::array<StopFlag, 4> kStopFlags{{{kTerminate, SIGTERM, "SIGTERM"},
                                              {kInterrupt, SIGINT, "SIGINT"},
                                              {kUser, SIGUSR1, "SIGUSR1"},
                                              {kTimeIsUp, 0, "the time limit"}}};

// Seconds until Slurm ends the job, if it says so; else 0. What a job that is over has left in a shell does
// not count.
double seconds_of_slurm_job() {
  const char* const text = std::getenv("SLURM_JOB_END_TIME");
  if (text == nullptr || std::getenv("SLURM_JOB_ID") == nullptr) {
    return 0.0;
  }
  const std::string_view digits(text);
  std::int64_t end = 0;
  const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), end);
  if (error != std::errc() || last != digits.data() + digits.size()) {
    throw Error(ExitCode::kUsage,
                fmt::format("SLURM_JOB_END_TIME is \"{}\": expected seconds since 1970", digits));
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::max(static_cast<double>(end) - std::chrono::duration<double>(now).count(), 0.0);
}

// Seconds from now, of which `passed` have passed of --time-limit; 0: no limit.
double time_left(const TrainOptions& options, double passed) {
  constexpr double kLeast = 0.001;
  const double slurms = seconds_of_slurm_job();
  if (options.time_limit == 0.0) {
    return slurms;
  }
  const double own = std::max(options.time_limit - passed, kLeast);
  return slurms == 0.0 ? own : std::min(own, slurms);
}

}  // namespace

RunKeeper::RunKeeper(const TrainOptions& options, MpiCommunicator& world, StopSignals* signals)
    : options_(options), world_(world), signals_(signals) {
  if (options.checkpoint_dir.empty()) {
    return;
  }
  const double passed = signals == nullptr ? 0.0 : signals->seconds_since_start();
  together(world, [&] { time_limit_ = time_left(options, passed); });
  // Rank 0's clock and environment count.
  world.broadcast(std::as_writable_bytes(std::span(&time_limit_, 1)), 0);
  flags_ = std::make_unique<SharedFlags>(world);
  if (world.rank() == 0) {
    writer_.emplace(CheckpointFolder(options.checkpoint_dir), options.keep);
  }
}

void RunKeeper::prepare(const std::function<std::uint64_t()>& bytes) {
  together(world_, [&] {
    if (writer_) {
      CheckpointFolder(options_.checkpoint_dir).prepare(bytes(), options_.keep);
    }
  });
}

void RunKeeper::begin() {
  since_save_.restart();
  since_step_.restart();
}

// Rank 0's clock counts. A step, evaluation included, and a save must still fit, with something to spare.
double RunKeeper::seconds_left() const {
  constexpr double kMargin = 2.0;
  constexpr double kSafety = 2.0;
  return time_limit_ - since_start_.seconds() - kMargin - kSafety * (longest_step_ + longest_save_);
}

std::uint32_t RunKeeper::own_flags() {
  std::uint32_t flags = 0;
  if (world_.rank() == 0) {
    constexpr double kMinute = 60.0;
    const Interval& every = options_.checkpoint_every;
    const bool is_due = every.unit == IntervalUnit::kMinutes &&
                        since_save_.seconds() >= kMinute * static_cast<double>(every.count);
    if (is_due) {
      flags |= kSave;
      since_save_.restart();  // all ranks hear of it one step later
    }
    if (time_limit_ > 0.0 && seconds_left() <= 0.0) {
      flags |= kTimeIsUp;
    }
    if (time_limit_ > 0.0 && seconds_left() <= kMinute) {
      flags |= kLate;
    }
  }
  const int received = signals_ == nullptr ? 0 : signals_->received();
  for (const StopFlag& stop : kStopFlags) {
    if (received != 0 && stop.signal == received) {
      flags |= stop.flag;
    }
  }
  return flags;
}

Verdict RunKeeper::after_step(std::int64_t global_step) {
  if (!is_keeping()) {
    return {};
  }
  collect(false);
  longest_step_ = std::max(longest_step_, since_step_.seconds());
  since_step_.restart();
  const std::uint32_t flags = flags_->exchange(own_flags());
  is_late_ = (flags & kLate) != 0;
  Verdict verdict;
  const Interval& every = options_.checkpoint_every;
  verdict.save =
      (flags & kSave) != 0 || (every.unit == IntervalUnit::kSteps && global_step % every.count == 0);
  for (const StopFlag& stop : kStopFlags) {
    if ((flags & stop.flag) != 0 && verdict.stop_reason.empty()) {
      verdict.stop_reason = stop.name;
    }
  }
  return verdict;
}

bool RunKeeper::wants_epoch(int epochs_done) const {
  const Interval& every = options_.checkpoint_every;
  return is_keeping() && every.unit == IntervalUnit::kEpochs && epochs_done % every.count == 0;
}

void RunKeeper::write(Checkpoint checkpoint) {
  since_save_.restart();
  if (writer_) {
    collect(true);
    writer_->start(std::move(checkpoint));
  }
}

void RunKeeper::finish() {
  collect(true);
  world_.barrier();  // no rank ends, and makes the launcher end the others, before all is written
}

void RunKeeper::collect(bool wait) {
  if (!writer_) {
    return;
  }
  if (auto written = writer_->written(wait)) {
    longest_save_ = std::max(longest_save_, written->seconds);
    written_ = std::move(written);
  }
}

std::optional<Written> RunKeeper::take_written() {
  return std::exchange(written_, std::nullopt);
}

}  // namespace convnet
