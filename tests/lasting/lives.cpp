#include "lasting/lives.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "app/bars.hpp"
#include "app/run_program.hpp"
#include "base/clock.hpp"
#include "convnet/checkpoint.hpp"
#include "train/checkpoint_folder.hpp"

namespace convnet {
namespace {

constexpr int kKeep = 2;

// The word behind the last `label`; empty if there is none.
std::string word_behind(const std::string& text, const std::string& label) {
  const std::size_t at = text.rfind(label);
  if (at == std::string::npos) {
    return "";
  }
  const std::size_t first = at + label.size();
  return text.substr(first, text.find_first_of(" \n", first) - first);
}

// "Epoch [1/3], Step [24/24], Loss: ..." was its last word.
bool is_evaluating(const std::string& out) {
  const std::size_t last_step = out.rfind(", Step [");
  if (last_step == std::string::npos || out.find("Test accuracy", last_step) != std::string::npos) {
    return false;
  }
  int step = 0;
  int steps = 0;
  return std::sscanf(out.c_str() + last_step, ", Step [%d/%d]", &step, &steps) == 2 && step == steps;
}

std::string phase_name(Phase phase, const std::string& out) {
  switch (phase) {
    case Phase::kProbe:
      return "probe of the folder";
    case Phase::kWrite:
      return "write";
    case Phase::kSynced:
      return "between write and rename";
    case Phase::kRenamed:
      return "between rename and pruning";
    case Phase::kPruning:
      return "pruning";
    case Phase::kIdle:
      break;
  }
  if (out.find(", Step [") == std::string::npos) {
    return "start";
  }
  return is_evaluating(out) ? "evaluation" : "training";
}

}  // namespace

Lives::Lives(const Scenario& scenario, unsigned seed) : scenario_(scenario), random_(seed) {
  write_bars(folder_.path(), {.train = 1200, .test = 6000});
  EXPECT_EQ(run_convnet({"convert", folder_.path(), data_}).exit_code, 0);
  const Stopwatch watch;
  Job job({scenario_.ranks, arguments(false), folder_.path(), ""});
  while (!job.is_over() && !has_come(Moment::kTraining, 1, job)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  start_seconds_ = watch.seconds();
  EXPECT_EQ(job.wait(), 0) << job.err();
  whole_seconds_ = watch.seconds();
  reference_ = word_behind(job.out(), "Weights SHA-256: ");
  EXPECT_EQ(reference_.size(), 64U);
}

std::vector<std::string> Lives::arguments(bool is_kept) const {
  std::vector<std::string> words{"train", "--data", data_, "--device", "cpu", "--threads", "1"};
  const std::string batch = std::to_string(50 / scenario_.ranks);
  words.insert(words.end(), {"--epochs", "3", "--batch", batch, "--log-every", "1"});
  words.insert(words.end(), scenario_.options.begin(), scenario_.options.end());
  if (is_kept) {
    words.insert(words.end(), {"--checkpoint-dir", checkpoints_, "--checkpoint-every", "5steps", "--keep",
                               std::to_string(kKeep), "--resume", "latest"});
  }
  return words;
}

Ending Lives::live(const Blow& blow) {
  const auto before = CheckpointFolder(checkpoints_).checkpoints();
  Job job({scenario_.ranks, arguments(true), folder_.path(), "pause=4000 piece=16384"});
  Ending ending;
  if (blow.signal != 0) {
    wait_for(blow, job);
    ending.was_struck = !job.is_over();
    ending.phase = phase_name(job.phase(), job.out());
    for (const pid_t pid : victims_of(blow, job)) {
      ending.was_launcher_struck |= scenario_.ranks > 1 && pid == job.launcher();
      kill(pid, blow.signal);
    }
  }
  ending.exit_code = job.wait();
  ending.out = job.out();
  ending.err = job.err();
  if (blow.signal == SIGKILL) {
    ending.phase = phase_name(job.phase(), ending.out);  // now it can no longer change
  }
  if (ending.was_struck) {
    ++phases_[ending.phase];
  }
  check_resumption(ending, before.empty() ? "" : before.front());
  check_checkpoints();
  if (ending.exit_code == 0) {
    complete(ending);
  }
  return ending;
}

std::int64_t Lives::newest_step() const {
  const auto all = CheckpointFolder(checkpoints_).checkpoints();
  return all.empty() ? 0 : read_checkpoint(all.front()).position.global_step;
}

int Lives::left_over() const {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints_, ignored)) {
    count += entry.path().filename().string().find(".tmp-") != std::string::npos ? 1 : 0;
  }
  return count;
}

void Lives::sleep_up_to(double seconds) {
  std::this_thread::sleep_for(
      std::chrono::duration<double>(std::uniform_real_distribution(0.0, seconds)(random_)));
}

// Whether the moment has come, `steps` steps after the start of this life.
bool Lives::has_come(Moment moment, std::size_t steps, const Job& job) const {
  const Phase phase = job.phase();
  if (moment == Moment::kProbe) {
    return phase == Phase::kProbe;
  }
  const std::string out = job.out();
  if (occurrences(out, ", Step [") < steps) {
    return false;
  }
  switch (moment) {
    case Moment::kWrite:
      return phase == Phase::kWrite;
    case Moment::kSynced:
      return phase == Phase::kSynced;
    case Moment::kRenamed:
      return phase == Phase::kRenamed;
    case Moment::kPruning:
      return phase == Phase::kPruning;
    case Moment::kEvaluation:
      return is_evaluating(out);
    default:
      return true;
  }
}

void Lives::wait_for(const Blow& blow, Job& job) {
  if (blow.moment == Moment::kAnyTime || blow.moment == Moment::kStart) {
    sleep_up_to(blow.moment == Moment::kStart ? start_seconds_ : 2 * whole_seconds_);
    return;
  }
  const std::size_t steps = std::uniform_int_distribution<std::size_t>(1, 20)(random_);
  while (!job.is_over() && !has_come(blow.moment, steps, job)) {
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  constexpr double kPause = 0.003;  // within the pause that the slow disk makes
  sleep_up_to(kPause);
}

std::vector<pid_t> Lives::victims_of(const Blow& blow, const Job& job) {
  std::vector<pid_t> victims{job.launcher()};
  if (blow.target != Target::kLauncher && scenario_.ranks > 1) {
    const std::vector<pid_t> ranks = job.ranks();
    if (!ranks.empty()) {
      victims = ranks;
    }
    if (blow.target == Target::kOneRank) {
      victims = {victims[std::uniform_int_distribution<std::size_t>(0, victims.size() - 1)(random_)]};
    }
  }
  return victims;
}

// Lines of the program's own that are neither information nor what ranks say of one that was killed.
std::size_t complaints(const std::string& err) {
  std::size_t count = occurrences(err, "convnet: ") - occurrences(err, "convnet: info: ");
  for (const char* word : {": has waited ", ": no answer from ", ": elsewhere than "}) {
    count -= occurrences(err, word);
  }
  return count;
}

// It went on from the newest checkpoint, and had no complaint.
void Lives::check_resumption(const Ending& ending, const std::filesystem::path& newest) const {
  if (ending.out.find(", Step [") != std::string::npos) {
    const std::string resumed = word_behind(ending.out, "Resuming ");
    EXPECT_EQ(resumed, newest.empty() ? "" : newest.string() + ":") << ending.out;
  }
  EXPECT_EQ(complaints(ending.err), 0U) << ending.err;
}

// All that has a checkpoint's name is one, whole, however its writer ended.
void Lives::check_checkpoints() const {
  for (const auto& path : CheckpointFolder(checkpoints_).checkpoints()) {
    EXPECT_NO_THROW(read_checkpoint(path)) << path;
  }
  EXPECT_LE(left_over(), 1) << "each start takes away what was left before";
}

void Lives::complete(const Ending& ending) {
  EXPECT_EQ(word_behind(ending.out, "Weights SHA-256: "), reference_) << ending.out;
  EXPECT_EQ(left_over(), 0);
  EXPECT_EQ(CheckpointFolder(checkpoints_).checkpoints().size(), std::size_t{kKeep});
  std::filesystem::remove_all(checkpoints_);
}

}  // namespace convnet
