// The program as a person starts it: alone and under mpiexec.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/bars.hpp"
#include "app/run_program.hpp"
#include "data/idx_files.hpp"
#include "log_events.hpp"

namespace convnet {
namespace {

using testing::HasSubstr;
using testing::Not;
class TrainProgram : public testing::Test {
 protected:
  void SetUp() override {
    write_bars(folder_.path());
    ASSERT_EQ(run_convnet({"convert", folder_.path(), data_}).exit_code, 0);
  }

  // `convnet train` on the small data set, on so many ranks with one thread each.
  ProgramResult train(int ranks, const Arguments& arguments) const {
    return run_ranks({{ranks, command(arguments)}});
  }

  Arguments command(const Arguments& arguments) const {
    Arguments words{"train", "--data", data_, "--threads", "1", "--device", "cpu"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }

  std::vector<nlohmann::json> events(const std::string& kind) const { return read_events(log_, kind); }

  TemporaryFolder folder_;
  std::string data_ = folder_ / "bars.h5";
  std::string log_ = folder_ / "log.jsonl";
};

TEST_F(TrainProgram, PrintsTheTutorialsLinesOnceHoweverManyRanks) {
  const ProgramResult result = train(3, {"--epochs", "2", "--log-every", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* step :
       {"[1/2], Step [3/4]", "[1/2], Step [4/4]", "[2/2], Step [3/4]", "[2/2], Step [4/4]"}) {
    EXPECT_EQ(occurrences(result.out, std::string("Epoch ") + step + ", Loss: "), 1U) << result.out;
  }
  EXPECT_EQ(occurrences(result.out, "Loss: "), 4U);
  EXPECT_EQ(occurrences(result.out, "/300), Test loss: "), 2U);
  EXPECT_EQ(occurrences(result.out, "Training complete in: 0:00:"), 1U);
}

TEST_F(TrainProgram, WritesAJsonLineForEveryEvent) {
  ASSERT_EQ(train(2, {"--epochs", "2", "--log", log_, "--log-steps"}).exit_code, 0);
  ASSERT_EQ(events("run_start").size(), 1U);
  EXPECT_EQ(events("run_start")[0]["world_size"], 2);
  EXPECT_EQ(events("run_start")[0]["lr"], 1e-4);
  EXPECT_EQ(events("run_start")[0]["bn-buffers"], "rank0");
  const auto steps = events("step");
  ASSERT_EQ(steps.size(), 12U);
  EXPECT_EQ(steps[11]["epoch"], 2);
  EXPECT_EQ(steps[11]["step"], 6);
  EXPECT_EQ(steps[11]["global_step"], 12);
  EXPECT_GT(steps[11]["images_per_s"], 0.0);
  EXPECT_NE(steps[11]["loss"], steps[11]["loss_rank0"]);
  ASSERT_EQ(events("epoch_end").size(), 2U);
  EXPECT_EQ(events("epoch_end")[1]["test_total"], 300);
  ASSERT_EQ(events("run_end").size(), 1U);
  EXPECT_EQ(events("run_end")[0]["steps"], 12);
  EXPECT_EQ(events("run_end")[0]["weights_sha256"].get<std::string>().size(), 64U);
}

TEST_F(TrainProgram, LearnsWhatIsThereToLearn) {
  ASSERT_EQ(train(2, {"--recipe", "onecycle", "--batch", "20", "--log", log_}).exit_code, 0);
  EXPECT_EQ(events("epoch_end").back()["test_correct"], 300);
}

TEST_F(TrainProgram, TheSameOptionsGiveTheSameWeightsTwice) {
  const Arguments arguments{"--recipe", "onecycle", "--log", log_};
  ASSERT_EQ(train(2, arguments).exit_code, 0);
  const auto first = events("run_end")[0]["weights_sha256"];
  ASSERT_EQ(train(2, arguments).exit_code, 0);
  EXPECT_EQ(events("run_end")[0]["weights_sha256"], first);
  ASSERT_EQ(train(2, {"--recipe", "onecycle", "--log", log_, "--seed", "1"}).exit_code, 0);
  EXPECT_NE(events("run_end")[0]["weights_sha256"], first);
}

TEST_F(TrainProgram, RanksWithSynchronisedBatchNormTrainAsOneRankWithTheirBatches) {
  const auto losses = [&](int ranks) {
    const std::string batch = std::to_string(120 / ranks);
    EXPECT_EQ(train(ranks, {"--bn", "sync", "--batch", batch, "--lr", "0.01", "--momentum", "0.9", "--epochs",
                            "2", "--log", log_, "--log-steps"})
                  .exit_code,
              0);
    std::vector<double> values;
    for (const auto& step : events("step")) {
      values.push_back(step["loss"]);
    }
    values.push_back(events("epoch_end").back()["test_loss"]);
    return values;
  };
  const std::vector<double> one_rank = losses(1);
  ASSERT_EQ(one_rank.size(), 21U);
  for (const int ranks : {2, 3, 4}) {
    // Both runs round differently, at 6e-8 of each sum, and 20 steps of momentum carry that on.
    EXPECT_THAT(losses(ranks), testing::Pointwise(testing::DoubleNear(1e-4), one_rank)) << ranks << " ranks";
  }
}

TEST_F(TrainProgram, EvaluatesEveryImageOnceAtAnyNumberOfRanks) {
  std::vector<nlohmann::json> results;
  for (const int ranks : {1, 2, 3, 4, 7}) {
    ASSERT_EQ(train(ranks, {"--lr", "0", "--max-steps", "1", "--bn", "sync", "--batch",
                            std::to_string(1200 / ranks), "--tail", "exact", "--log", log_})
                  .exit_code,
              0);
    results.push_back(events("epoch_end").back());
    EXPECT_EQ(results.back()["test_total"], 300);
    if (ranks != 7) {  // 7 x 171 samples are not the whole set, and its statistics differ
      EXPECT_EQ(results.back()["test_correct"], results.front()["test_correct"]) << ranks << " ranks";
      EXPECT_NEAR(results.back()["test_loss"], results.front()["test_loss"].get<double>(), 1e-5);
    }
  }
}

TEST_F(TrainProgram, StaticShardingTrainsOnEachRanksOwnPart) {
  const ProgramResult result = train(
      3, {"--sharding", "static", "--tail", "exact", "--recipe", "onecycle", "--batch", "20", "--log", log_});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(events("run_end")[0]["steps"], 60);  // 3 epochs of 400 / 20
  EXPECT_GE(events("epoch_end").back()["test_correct"], 290);
}

TEST_F(TrainProgram, RanksWithoutSamplesLeftStillTakePart) {
  for (const char* norm : {"local", "sync"}) {
    const ProgramResult result = train(4, {"--tail", "exact", "--batch", "299", "--bn", norm, "--log", log_});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(events("run_end")[0]["steps"], 4);  // 300 samples a rank: a step of 299 and one of 1, twice
  }
}

TEST_F(TrainProgram, MoreRanksThanSamplesRepeatThem) {
  const TemporaryFolder few;
  write_bytes(few / "train-images-idx3-ubyte", idx_bytes({2, 8, 8}, pixel_ramp(128)));
  write_bytes(few / "train-labels-idx1-ubyte", idx_bytes({2}, {0, 1}));
  write_bytes(few / "t10k-images-idx3-ubyte", idx_bytes({3, 8, 8}, pixel_ramp(192)));
  write_bytes(few / "t10k-labels-idx1-ubyte", idx_bytes({3}, {0, 1, 1}));
  data_ = few / "few.h5";
  ASSERT_EQ(run_convnet({"convert", few.path(), data_}).exit_code, 0);
  for (const char* tail : {"pad", "exact"}) {
    for (const char* sharding : {"global", "static"}) {
      const ProgramResult result =
          train(4, {"--tail", tail, "--sharding", sharding, "--bn", "sync", "--log", log_});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      EXPECT_EQ(events("run_end")[0]["steps"], 2);
      EXPECT_EQ(events("epoch_end")[0]["test_total"], 3);
    }
  }
}

TEST_F(TrainProgram, ABatchOfOneIsFinite) {
  ASSERT_EQ(train(1, {"--batch", "1", "--max-steps", "5", "--log", log_, "--log-steps"}).exit_code, 0);
  for (const auto& step : events("step")) {
    EXPECT_TRUE(step["loss"].is_number()) << step;
  }
}

TEST_F(TrainProgram, TheMeanOfTheRunningStatisticsIsAnotherNetworkThanRank0s) {
  const auto test_loss = [&](const char* buffers) {
    EXPECT_EQ(
        train(2, {"--bn-buffers", buffers, "--batch", "10", "--max-steps", "5", "--log", log_}).exit_code, 0);
    return events("epoch_end")[0]["test_loss"];
  };
  EXPECT_NE(test_loss("mean"), test_loss("rank0"));
}

TEST_F(TrainProgram, TheLearningRateRisesAndScalesAsAskedFor) {
  ASSERT_EQ(train(4, {"--lr", "0.01", "--lr-scale", "sqrt", "--warmup", "0.5", "--max-steps", "4", "--batch",
                      "50", "--log", log_, "--log-steps"})
                .exit_code,
            0);
  std::vector<double> rates;
  for (const auto& step : events("step")) {
    rates.push_back(step["lr"]);
  }
  EXPECT_THAT(rates, testing::ElementsAre(0.01, 0.02, 0.02, 0.02));
}

TEST_F(TrainProgram, AFileOverridesTheRecipeAndFlagsOverrideTheFile) {
  const std::string config = folder_ / "run.toml";
  std::ofstream(config) << "recipe = \"onecycle\"\nbatch = 60\nlr = 0.02\nreshuffle = false\n";
  ASSERT_EQ(train(1, {"--config", config, "--lr", "0.03", "--log", log_}).exit_code, 0);
  const auto start = events("run_start")[0];
  EXPECT_EQ(start["schedule"], "onecycle");
  EXPECT_EQ(start["batch"], 60);
  EXPECT_EQ(start["lr"], 0.03);
  EXPECT_EQ(start["reshuffle"], false);
}

TEST_F(TrainProgram, AMistakeInAFileIsNamedWithTheFile) {
  const std::string config = folder_ / "run.toml";
  for (const char* line : {"bach = 60", "batch = many", "batch = -1", "batch =", "batch = 10\nbatch = 20",
                           "optimizer = \"adam\"", "reshuffle = 5", "no-reshuffle = true", "lr = nan",
                           "seed = -1", "[train]\nbatch = 10"}) {
    std::ofstream(config) << line << "\n";
    const ProgramResult result = train(1, {"--config", config});
    EXPECT_EQ(result.exit_code, 2) << line << "\n" << result.err;
    EXPECT_THAT(result.err, HasSubstr(config));
  }
}

struct Mistake {
  Arguments arguments;
  int exit_code;
  std::string complaint;
};

TEST_F(TrainProgram, SaysOnceWhatIsWrongAndEndsTheJob) {
  const std::vector<Mistake> mistakes{
      {{"--epochs", "0"}, 2, "--epochs"},
      {{"--batch", "many"}, 2, "--batch"},
      {{"--optimizer", "adam"}, 2, "--optimizer"},
      {{"--recipe", "fast"}, 2, "expected seed, onecycle or large"},
      {{"--nesterov"}, 2, "--nesterov needs --momentum"},
      {{"--optimizer", "adamw", "--momentum", "0.9"}, 2, "--momentum"},
      {{"--log-steps"}, 2, "--log"},
      {{"--no-such-flag"}, 2, "--no-such-flag"},
      {{"--recipe", "onecycle", "--optimizer", "adamw"}, 2, "add --momentum 0 --no-nesterov"},
      {{"--lr", "nan"}, 2, "--lr"},
      {{"--lr", "inf"}, 2, "--lr"},
      {{"--momentum", "1"}, 2, "--momentum"},
      {{"--clip-norm", "-1"}, 2, "--clip-norm"},
      {{"--seed", "-1"}, 2, "--seed"},
      {{"--seed", "18446744073709551616"}, 2, "--seed"},
      {{"--log", data_}, 2, "is the data file itself"},
      {{"--config", "/nowhere.toml"}, 2, "/nowhere.toml"},
      {{"--data", "/nowhere.h5"}, 74, "/nowhere.h5"},
      {{"--log", "/nowhere/log.jsonl"}, 74, "/nowhere/log.jsonl"},
      {{"--lr", "1e30"}, 65, "not finite"},
  };
  for (const Mistake& mistake : mistakes) {
    SCOPED_TRACE(mistake.complaint);
    const ProgramResult result = train(2, mistake.arguments);
    EXPECT_EQ(result.exit_code, mistake.exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(mistake.complaint));
    EXPECT_EQ(occurrences(result.err, "convnet: "), 1U) << result.err;
  }
}

TEST_F(TrainProgram, AMistakeLeavesTheFilesAsTheyWere) {
  std::ofstream(log_) << "precious";
  EXPECT_EQ(train(1, {"--log", log_, "--data", "/nowhere.h5"}).exit_code, 74);
  EXPECT_EQ(read_text(log_), "precious");
  EXPECT_EQ(train(1, {"--log", data_}).exit_code, 2);
  EXPECT_EQ(run_convnet({"info", data_}).exit_code, 0);
}

TEST_F(TrainProgram, OneRankAloneGivesItsMessageAndNothingElse) {
  const ProgramResult result = train(1, {"--data", "/nowhere.h5"});
  EXPECT_EQ(result.exit_code, 74);
  EXPECT_EQ(occurrences(result.err, "\n"), 1U) << result.err;
}

TEST_F(TrainProgram, ANetworkThatGoesWrongAtTheLastStepIsAnErrorToo) {
  const ProgramResult result = train(1, {"--lr", "1e38", "--max-steps", "1"});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_THAT(result.err, HasSubstr("not finite"));
}

TEST_F(TrainProgram, OutputThatCannotBeWrittenIsAnError) {
  for (const std::string command : {"train --max-steps 1 --data ", "info "}) {
    const ProgramResult result =
        run_command({"sh", "-c", std::string(CONVNET_PROGRAM) + " " + command + data_ + " >/dev/full"});
    EXPECT_EQ(result.exit_code, 74) << command << result.err;
    EXPECT_THAT(result.err, HasSubstr("standard output"));
  }
}

TEST_F(TrainProgram, HelpIsPrintedOnce) {
  const ProgramResult result = run_ranks({{3, {"train", "--help"}}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(occurrences(result.out, "--weight-decay"), 1U);
  EXPECT_THAT(result.out, HasSubstr("--batch N=100"));
}

TEST_F(TrainProgram, AFailureOfAnyRankEndsTheJobAndNamesIt) {
  const ProgramResult result = run_ranks({{1, command({})}, {1, command({"--data", "/nowhere.h5"})}});
  EXPECT_EQ(result.exit_code, 74);
  EXPECT_THAT(result.err, HasSubstr("rank 1: /nowhere.h5"));
}

TEST_F(TrainProgram, RefusesRanksThatDoNotAgree) {
  const ProgramResult options = run_ranks({{2, command({})}, {1, command({"--lr", "0.1"})}});
  EXPECT_EQ(options.exit_code, 2);
  EXPECT_THAT(options.err, HasSubstr("--lr must be the same on all ranks"));
  EXPECT_THAT(options.err, HasSubstr("rank 2"));

  const TemporaryFolder other;
  write_small_source_files(other.path());
  const std::string small = other / "small.h5";
  ASSERT_EQ(run_convnet({"convert", other.path(), small}).exit_code, 0);
  const std::string transposed = other / "transposed.h5";
  ASSERT_EQ(run_convnet({"convert", folder_.path(), transposed, "--transpose"}).exit_code, 0);
  const ProgramResult data = run_ranks({{1, command({})}, {1, command({"--data", small})}});
  EXPECT_EQ(data.exit_code, 2);
  EXPECT_THAT(data.err, HasSubstr("the data file must be the same on all ranks"));
  EXPECT_EQ(run_ranks({{1, command({})}, {1, command({"--data", transposed})}}).exit_code, 2);
}

TEST_F(TrainProgram, RefusesALaunchThatLeavesEveryRankAlone) {
  const ProgramResult result =
      run_command({"env", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=4", CONVNET_PROGRAM,
                   "train", "--data", data_});
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_THAT(result.err, HasSubstr("srun --mpi=pmix"));
  EXPECT_EQ(run_command({"env", "PMIX_RANK=3", CONVNET_PROGRAM, "train", "--data", data_}).exit_code, 69);
}

TEST_F(TrainProgram, WarnsOfMoreThreadsThanCores) {
  const ProgramResult result = run_command(
      {"env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", CONVNET_MPIEXEC, "-n", "1",
       "--bind-to", "core", CONVNET_PROGRAM, "train", "--data", data_, "--threads", "2", "--max-steps", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("bound to 1 core"));
  EXPECT_THAT(train(1, {"--max-steps", "1"}).err, Not(HasSubstr("bound to")));
}

}  // namespace
}  // namespace convnet
