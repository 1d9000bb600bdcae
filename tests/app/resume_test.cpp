// Runs that are saved and taken up again, as a person does it: alone and under mpiexec.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/bars.hpp"
#include "app/run_program.hpp"
#include "log_events.hpp"

namespace convnet {
namespace {

using testing::HasSubstr;
using testing::Not;

class ResumedRun : public testing::Test {
 protected:
  void SetUp() override {
    write_bars(folder_.path());
    ASSERT_EQ(run_convnet({"convert", folder_.path(), data_}).exit_code, 0);
  }

  // `convnet train` on the small data set, on so many ranks with one thread each, logging every step.
  ProgramResult train(int ranks, const Arguments& arguments) const {
    return run_ranks({{ranks, Arguments{"train", "--data", data_, "--threads", "1", "--device", "cpu",
                                        "--log", log_, "--log-steps"} +
                                  arguments}});
  }

  // The weights' sum that a run which has to end well ends with.
  std::string weights(int ranks, const Arguments& arguments) const {
    const ProgramResult result = train(ranks, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::string title = "Weights SHA-256: ";
    return result.out.substr(result.out.find(title) + title.size(), 64);
  }

  std::vector<nlohmann::json> events(const std::string& kind) const { return read_events(log_, kind); }

  std::vector<double> losses() const { return read_step_losses(log_); }

  std::string checkpoint(int step) const { return saved_ + fmt::format("/step-{:09}.h5", step); }

  TemporaryFolder folder_;
  std::string data_ = folder_ / "bars.h5";
  std::string log_ = folder_ / "log.jsonl";
  std::string saved_ = folder_ / "saved";
};

// 1200 samples, 2 epochs: at batch 50 on 2 ranks of 12 steps each.
const Arguments kBatch{"--batch", "50", "--epochs", "2"};

struct Kind {
  std::string name;
  Arguments arguments;
};

class BitwiseResume : public ResumedRun, public testing::WithParamInterface<Kind> {};

TEST_P(BitwiseResume, EndsWithTheWeightsOfTheRunThatWasNeverInterrupted) {
  const Arguments options = GetParam().arguments + kBatch;
  const std::string expected = weights(2, options);
  const std::string saving = weights(
      2, options + Arguments{"--checkpoint-dir", saved_, "--checkpoint-every", "4steps", "--keep", "9"});
  EXPECT_EQ(saving, expected) << "saving changes the run";
  for (const int step : {4, 12, 20}) {  // within an epoch, at its end before evaluation, within the last
    EXPECT_EQ(weights(2, {"--resume", checkpoint(step)}), expected) << "from step " << step;
    EXPECT_EQ(events("step").back()["global_step"], 24);
  }
  const ProgramResult again = train(2, {"--resume", checkpoint(24)});
  EXPECT_THAT(again.out, HasSubstr("Nothing is left to train"));
  EXPECT_THAT(again.out, HasSubstr(expected));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, BitwiseResume,
    testing::Values(Kind{"Sgd", {"--lr", "0.01"}}, Kind{"NesterovOneCycle", {"--recipe", "onecycle"}},
                    Kind{"AdamWCosine",
                         {"--optimizer", "adamw", "--lr", "0.002", "--schedule", "cosine", "--warmup", "0.1",
                          "--reshuffle"}},
                    Kind{"MomentumStep", {"--momentum", "0.9", "--lr", "0.01", "--schedule", "step"}},
                    Kind{"StaticShards",
                         {"--sharding", "static", "--tail", "exact", "--lr", "0.01", "--lr-scale", "linear",
                          "--reshuffle"}},
                    Kind{"MeanBuffers", {"--bn-buffers", "mean", "--lr", "0.01"}},
                    Kind{"SynchronisedBatchNorm", {"--bn", "sync", "--lr", "0.01"}}),
    [](const auto& test) { return test.param.name; });

TEST_F(ResumedRun, AtAnotherWorldSizeGoesOnWithTheSamplesThatAreLeft) {
  const Arguments options = kBatch + Arguments{"--tail", "exact"};
  weights(2, options + Arguments{"--max-steps", "5", "--checkpoint-dir", saved_});
  weights(3, {"--resume", checkpoint(5), "--max-steps", "0"});
  // 500 of 1200 samples are seen: 700 are left for 3 ranks, 5 steps; the second epoch has 8.
  const auto steps = events("step");
  EXPECT_EQ(steps.back()["global_step"], 5 + 5 + 8);
  EXPECT_EQ(events("epoch_end").size(), 3U);  // the first run's one in the middle, and two whole epochs
  const std::string text = train(1, {"--resume", checkpoint(5), "--max-steps", "0"}).out;
  EXPECT_THAT(text, HasSubstr("epoch 1, 5 steps done in it"));
  EXPECT_THAT(text, HasSubstr("Epoch [1/2], Step [19/19]"));  // 5 and 700 / 50
}

// The order of samples and batch norm are then the same at any number of ranks.
TEST_F(ResumedRun, AtAnotherWorldSizeWithTheSameBatchInAllTrainsTheSame) {
  for (const char* schedule : {"constant", "onecycle", "cosine"}) {
    const Arguments options{
        "--bn",       "sync",   "--batch",  "60",  "--lr",     "0.01", "--momentum",  "0.9",
        "--schedule", schedule, "--warmup", "0.2", "--epochs", "2",    "--reshuffle", "--checkpoint-dir"};
    const std::string saved = folder_ / schedule;
    weights(2, options + Arguments{saved, "--checkpoint-every", "7steps", "--keep", "9"});
    const std::vector<double> expected = losses();
    ASSERT_EQ(expected.size(), 20U);
    for (const int ranks : {1, 3}) {
      std::filesystem::remove(log_);
      weights(ranks, {"--resume", saved + "/step-000000007.h5", "--override", "--batch",
                      std::to_string(120 / ranks)});
      // Both runs round differently, at 6e-8 of each sum, and 13 steps of momentum carry that on.
      EXPECT_THAT(losses(), testing::Pointwise(testing::DoubleNear(1e-4),
                                               std::vector<double>(expected.begin() + 7, expected.end())))
          << schedule << " on " << ranks << " ranks";
    }
  }
}

TEST_F(ResumedRun, FromTheEndOfAnEpochRunsTheNextOneAndNoneTwice) {
  weights(1, kBatch + Arguments{"--checkpoint-dir", saved_});
  weights(1, {"--resume", checkpoint(24)});
  const auto ends = events("epoch_end");
  ASSERT_EQ(ends.size(), 3U);  // both of the first run, then the second
  EXPECT_EQ(ends[2]["epoch"], 2);
  EXPECT_EQ(ends[2]["test_loss"], ends[1]["test_loss"]);
}

TEST_F(ResumedRun, GoesOnForMoreEpochsWhereTheRatesDoNotDependOnThem) {
  const std::string expected = weights(1, {"--batch", "100", "--epochs", "3"});
  weights(1, {"--batch", "100", "--epochs", "2", "--checkpoint-dir", saved_});
  EXPECT_EQ(weights(1, {"--checkpoint-dir", saved_, "--resume", "latest", "--epochs", "3"}), expected);
  EXPECT_EQ(train(1, {"--checkpoint-dir", saved_, "--resume", "latest", "--epochs", "2"}).exit_code, 0);
}

TEST_F(ResumedRun, NamesBothValuesOfWhatContradictsTheCheckpoint) {
  weights(2, {"--recipe", "onecycle", "--max-steps", "3", "--checkpoint-dir", saved_});
  const std::vector<std::pair<Arguments, std::string>> contradictions{
      {{"--lr", "0.5"}, "--lr is 0.5, but 0.05 in the checkpoint"},
      {{"--batch", "20"}, "--batch is 20, but 100"},
      {{"--epochs", "7"}, "--epochs is 7, but 3"},
      {{"--no-nesterov"}, "--nesterov is false, but true"},
      {{"--recipe", "seed"}, R"(--recipe is "seed", but "onecycle")"},
      {{"--optimizer", "adamw", "--momentum", "0", "--no-nesterov"}, R"(--optimizer is "adamw", but "sgd")"}};
  for (const auto& [arguments, complaint] : contradictions) {
    const Arguments resume = Arguments{"--resume", checkpoint(3)} + arguments;
    const ProgramResult refused = train(2, resume);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr(complaint));
    EXPECT_EQ(occurrences(refused.err, "convnet: "), 1U) << refused.err;
    EXPECT_EQ(train(2, resume + Arguments{"--override"}).exit_code, 0) << complaint;
  }
  EXPECT_EQ(train(2, {"--resume", checkpoint(3), "--recipe", "onecycle", "--lr", "0.05"}).exit_code, 0);
}

TEST_F(ResumedRun, RefusesOtherData) {
  weights(1, {"--max-steps", "3", "--checkpoint-dir", saved_});
  const TemporaryFolder other;
  write_bars(other.path(), {.train = 900, .test = 300});
  const std::string fewer = other / "fewer.h5";
  ASSERT_EQ(run_convnet({"convert", other.path(), fewer}).exit_code, 0);
  const ProgramResult refused = train(1, {"--resume", checkpoint(3), "--data", fewer});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("is other data"));
  // The epoch under way begins anew, with the 9 steps that these data have; and the second one follows.
  EXPECT_EQ(
      train(1, {"--resume", checkpoint(3), "--data", fewer, "--override", "--max-steps", "0"}).exit_code, 0);
  EXPECT_EQ(events("run_end").back()["steps"], 3 + 9 + 9);
  EXPECT_EQ(events("epoch_end").back()["epoch"], 2);
}

TEST_F(ResumedRun, WritesItsLogBehindWhatIsThere) {
  weights(2,
          kBatch + Arguments{"--checkpoint-dir", saved_, "--checkpoint-every", "4steps", "--max-steps", "6"});
  weights(2, {"--resume", checkpoint(4), "--max-steps", "0"});
  const auto starts = events("run_start");
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[0]["resumed_from"], "");
  EXPECT_EQ(starts[1]["resumed_from"], checkpoint(4));
  const auto steps = events("step");
  ASSERT_EQ(steps.size(), 6U + 20U);
  EXPECT_EQ(steps[6]["global_step"], 5);
  EXPECT_EQ(steps[5]["loss"], steps[7]["loss"]) << "step 6 of both runs";
}

TEST_F(ResumedRun, KeepsAsManyCheckpointsAsAskedFor) {
  weights(1, {"--batch", "100", "--checkpoint-dir", saved_, "--checkpoint-every", "5steps", "--keep", "2"});
  EXPECT_FALSE(std::filesystem::exists(checkpoint(15)));
  EXPECT_TRUE(std::filesystem::exists(checkpoint(20)));
  EXPECT_TRUE(std::filesystem::exists(checkpoint(24)));
  EXPECT_EQ(events("checkpoint").size(), 5U);
}

TEST_F(ResumedRun, NeverMixesWithTheCheckpointsOfAnother) {
  const Arguments saving{"--checkpoint-dir", saved_, "--checkpoint-every", "4steps", "--keep", "99"};
  weights(1, saving + kBatch);
  const std::string foreign = folder_ / "foreign";
  weights(1, {"--max-steps", "60", "--epochs", "9", "--checkpoint-dir", foreign});
  for (const Arguments& arguments : {Arguments{}, Arguments{"--resume", checkpoint(16)},
                                     Arguments{"--resume", foreign + "/step-000000060.h5"}}) {
    const ProgramResult refused = train(1, saving + arguments);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr("step-000000048.h5"));
  }
}

TEST_F(ResumedRun, WaitsForTheRunThatStillWritesToItsFolder) {
  const Arguments saving{"--checkpoint-dir", saved_, "--resume", "latest"};
  std::filesystem::create_directory(saved_);
  // Somebody else holds the folder for two seconds.
  std::thread holder([this] { run_command({"flock", saved_ + "/lock", "sleep", "2"}); });
  while (!std::filesystem::exists(saved_ + "/lock")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const ProgramResult result = train(2, saving + Arguments{"--max-steps", "1"});
  holder.join();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("waiting for another run to leave " + saved_));
}

TEST_F(ResumedRun, TakesANewRecipesOwnOptionsAndTheRestFromTheCheckpoint) {
  weights(1, {"--batch", "50", "--seed", "4", "--max-steps", "3", "--checkpoint-dir", saved_});
  EXPECT_EQ(train(1, {"--resume", checkpoint(3), "--recipe", "onecycle", "--override"}).exit_code, 0);
  const auto start = events("run_start").back();
  EXPECT_EQ(start["schedule"], "onecycle");
  EXPECT_EQ(start["lr"], 0.05);
  EXPECT_EQ(start["batch"], 50);
  EXPECT_EQ(start["seed"], 4);
}

TEST_F(ResumedRun, GoesOnAsItWasKept) {
  weights(1, {"--max-steps", "4", "--checkpoint-dir", saved_, "--checkpoint-every", "2steps", "--keep", "7",
              "--on-nonfinite", "skip"});
  weights(1, {"--resume", checkpoint(4), "--checkpoint-dir", saved_, "--max-steps", "6"});
  const auto start = events("run_start").back();
  EXPECT_EQ(start["checkpoint-every"], "2steps");
  EXPECT_EQ(start["keep"], 7);
  EXPECT_EQ(start["on-nonfinite"], "skip");
}

TEST_F(ResumedRun, RefusesAScheduleThatCountsStepsOfOtherRanks) {
  weights(1, {"--max-steps", "6", "--schedule", "cosine", "--checkpoint-dir", saved_, "--checkpoint-every",
              "2steps"});
  EXPECT_EQ(train(1, {"--resume", checkpoint(2)}).exit_code, 0);
  const ProgramResult refused = train(2, {"--resume", checkpoint(2)});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--max-steps 6"));
}

TEST_F(ResumedRun, EvaluatesAgainWhereItMayHaveEndedBeforeItCould) {
  weights(1, {"--max-steps", "5", "--checkpoint-dir", saved_});
  weights(1, {"--resume", checkpoint(5)});
  const auto ends = events("epoch_end");
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_EQ(ends[0]["test_loss"], ends[1]["test_loss"]);
}

TEST_F(ResumedRun, RefusesOptionsThatDoNothingAlone) {
  for (const Arguments& alone : {Arguments{"--time-limit", "2h"}, Arguments{"--checkpoint-every", "5steps"},
                                 Arguments{"--keep", "3"}, Arguments{"--override"}}) {
    const ProgramResult refused = train(1, alone);
    EXPECT_EQ(refused.exit_code, 2) << alone.front();
    EXPECT_THAT(refused.err, HasSubstr(alone.front() + " does nothing without"));
  }
}

TEST_F(ResumedRun, OfNothingStartsFromTheBeginning) {
  const ProgramResult result =
      train(2, {"--checkpoint-dir", saved_, "--resume", "latest", "--max-steps", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("holds no checkpoint yet: starting from the beginning"));
  EXPECT_TRUE(std::filesystem::exists(checkpoint(2)));
  EXPECT_EQ(train(1, {"--resume", "latest"}).exit_code, 2);
  EXPECT_EQ(train(1, {"--resume", checkpoint(3)}).exit_code, 74);
}

TEST_F(ResumedRun, IsDescribedByTheCheckpointItself) {
  const std::string sum = weights(2, {"--batch", "50", "--epochs", "1", "--checkpoint-dir", saved_});
  const ProgramResult info = run_convnet({"info", checkpoint(12)});
  EXPECT_EQ(info.exit_code, 0) << info.err;
  for (const std::string& part : {std::string("epoch 2, 0 steps"), std::string("12 steps in all"), sum,
                                  std::string("layer2.1.running_var"), std::string("oneDNN")}) {
    EXPECT_THAT(info.out, HasSubstr(part));
  }
}

TEST_F(ResumedRun, StopsInTimeToSaveBeforeTheTimeLimit) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto end = std::chrono::duration_cast<std::chrono::seconds>(now).count() + 6;
  const Arguments endless{"train",    "--data", data_,      "--threads", "1",
                          "--device", "cpu",    "--epochs", "1000000"};
  const auto has_checkpoint = [](const std::string& folder) {
    return std::ranges::any_of(std::filesystem::directory_iterator(folder), [](const auto& entry) {
      return entry.path().filename().string().starts_with("step-");
    });
  };
  const std::vector<ProgramResult> results{
      train(2, {"--epochs", "1000000", "--checkpoint-dir", saved_, "--time-limit", "4s"}),
      run_command(
          Arguments{"env", "SLURM_JOB_ID=7", "SLURM_JOB_END_TIME=" + std::to_string(end), CONVNET_PROGRAM} +
          endless + Arguments{"--checkpoint-dir", saved_ + "2"})};
  for (const ProgramResult& result : results) {
    EXPECT_EQ(result.exit_code, 75) << result.err;
    EXPECT_EQ(occurrences(result.out, "Stopped by the time limit after step "), 1U) << result.out;
  }
  EXPECT_TRUE(has_checkpoint(saved_));
  EXPECT_TRUE(has_checkpoint(saved_ + "2"));
  EXPECT_EQ(train(1, {"--checkpoint-dir", saved_ + "3", "--time-limit", "soon"}).exit_code, 2);
}

TEST_F(ResumedRun, IsNotEndedByTheTimeThatAnotherJobHasLeftInTheShell) {
  const Arguments two_steps{"train", "--data",      data_, "--device",
                            "cpu",   "--max-steps", "2",   "--checkpoint-dir"};
  for (const Arguments& left : {Arguments{"SLURM_JOB_ID=7", "SLURM_JOB_END_TIME=1000"},
                                Arguments{"-u", "SLURM_JOB_ID", "SLURM_JOB_END_TIME=99999999999"}}) {
    const ProgramResult result = run_command(Arguments{"env"} + left + Arguments{CONVNET_PROGRAM} +
                                             two_steps + Arguments{folder_ / left.back()});
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
}

TEST_F(ResumedRun, IsNotSpoiltByAStepThatIsNotFinite) {
  const Arguments diverging{"--lr", "1e30", "--checkpoint-dir", saved_, "--checkpoint-every", "1step"};
  const ProgramResult stopped = train(2, diverging);
  EXPECT_EQ(stopped.exit_code, 65);
  EXPECT_THAT(stopped.err, HasSubstr("step 2 of epoch 1 (step 2 of the run)"));
  EXPECT_THAT(stopped.err, HasSubstr("rank 1: loss"));
  EXPECT_THAT(stopped.err, HasSubstr("the gradient of fc.bias not finite"));
  EXPECT_EQ(occurrences(stopped.err, "convnet: "), 1U) << stopped.err;
  EXPECT_TRUE(std::filesystem::exists(checkpoint(1)));
  EXPECT_FALSE(std::filesystem::exists(checkpoint(2)));
  EXPECT_EQ(run_convnet({"info", checkpoint(1)}).exit_code, 0);
}

TEST_F(ResumedRun, NamesTheStepThatWasNotFiniteHoweverLateItIsSeen) {
  const Arguments diverging{"--lr", "1e30", "--max-steps", "9"};
  for (const char* flag : {"--log-steps", "--no-log-steps"}) {
    const ProgramResult stopped = train(2, diverging + Arguments{flag});
    EXPECT_EQ(stopped.exit_code, 65);
    EXPECT_THAT(stopped.err, HasSubstr("step 2 of epoch 1 (step 2 of the run)"));
  }
}

TEST_F(ResumedRun, LeavesOutUpdatesThatAreNotFiniteWhereAskedTo) {
  const ProgramResult result = train(2, {"--lr", "1e30", "--max-steps", "3", "--on-nonfinite", "skip"});
  EXPECT_EQ(events("step").size(), 3U);
  EXPECT_EQ(result.exit_code, 65);  // what is left after the first update cannot be evaluated
  EXPECT_THAT(result.err, HasSubstr("evaluation after epoch 1"));
}

TEST_F(ResumedRun, LeavesTheLogAsItWasWhereItCannotBeSaved) {
  std::ofstream(log_) << "precious";
  const ProgramResult result = train(2, {"--checkpoint-dir", data_});
  EXPECT_EQ(result.exit_code, 74);
  EXPECT_THAT(result.err, HasSubstr(data_));
  EXPECT_EQ(read_text(log_), "precious");
}

TEST_F(ResumedRun, WithoutCheckpointsSaysNothingOfThem) {
  const ProgramResult result = train(2, {"--max-steps", "2"});
  EXPECT_THAT(result.out, Not(HasSubstr("Saved")));
}

}  // namespace
}  // namespace convnet
