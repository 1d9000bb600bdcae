#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "app/bars.hpp"
#include "app/run_program.hpp"
#include "lasting/job.hpp"
#include "train/checkpoint_folder.hpp"

namespace convnet {

// A short run of 24 steps that saves itself every 5, and how it ends when nothing goes wrong.
class KeptRun : public testing::Test {
 protected:
  void SetUp() override {
    write_bars(folder_.path());
    ASSERT_EQ(run_convnet({"convert", folder_.path(), data_}).exit_code, 0);
    const ProgramResult result = run_convnet(arguments({}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    weights_ = result.out.substr(result.out.find("Weights SHA-256: "));
  }

  // Options of one rank, and of one of two whose batches make the same number of steps.
  std::vector<std::string> arguments(const std::vector<std::string>& more, int ranks = 1) const {
    std::vector<std::string> words{
        "train",       "--data", data_,      "--device", "cpu",
        "--threads",   "1",      "--epochs", "1",        "--recipe",
        "onecycle",    "--lr",   "0.01",     "--batch",  std::to_string(50 / ranks),
        "--log-every", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  JobPlan plan(const std::string& disk, int ranks = 1) const {
    return {
        ranks,
        arguments({"--checkpoint-dir", checkpoints_, "--checkpoint-every", "5steps", "--resume", "latest"},
                  ranks),
        folder_.path(), disk};
  }

  static bool wait_for_text(Job& job, const std::string& text) {
    while (job.out().find(text) == std::string::npos) {
      if (job.is_over()) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  // It goes on from the newest checkpoint and ends as if nothing had been.
  void expect_good_end() const {
    Job job(plan(""));
    EXPECT_EQ(job.wait(), 0) << job.err();
    EXPECT_NE(job.out().find("Resuming " + checkpoints_), std::string::npos) << job.out();
    EXPECT_NE(job.out().find(weights_), std::string::npos) << job.out();
  }

  std::size_t left_over() const {
    std::size_t count = 0;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoints_, ignored)) {
      count += occurrences(entry.path().filename().string(), ".tmp-");
    }
    return count;
  }

  TemporaryFolder folder_;
  std::string data_ = folder_ / "bars.h5";
  std::string checkpoints_ = folder_ / "checkpoints";
  std::string weights_;
};

}  // namespace convnet
