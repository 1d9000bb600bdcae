// Runs on the stand-in for a GPU that are saved and taken up again, there and on the CPU.
#include "app/standin_program.hpp"

namespace convnet {
namespace {

using testing::HasSubstr;

class CudaResumedRun : public StandinProgram {
 protected:
  std::vector<double> losses_of_steps() const { return read_step_losses(log_); }

  std::string weights() const { return events("run_end").back()["weights_sha256"]; }

  std::string saved_ = folder_ / "saved";
  std::string third_step_ = saved_ + "/step-000000003.h5";
};

// 100 samples: 5 steps an epoch on one rank.
const Arguments kAdamW{"--optimizer", "adamw", "--lr", "0.002", "--epochs", "2", "--log-steps"};
const Arguments kGpu{"--device", "cuda", "--deterministic"};
const Arguments kCpu{"--device", "cpu"};

TEST_F(CudaResumedRun, EndsWithTheWeightsOfTheRunThatWasNeverInterrupted) {
  for (const int ranks : {1, 2}) {
    const Arguments saving{"--checkpoint-dir", saved_, "--checkpoint-every", "3steps", "--keep", "9"};
    train_well(ranks, kAdamW + kGpu);
    const std::string expected = weights();
    train_well(ranks, kAdamW + kGpu + saving);
    EXPECT_EQ(weights(), expected) << "saving changes the run";
    train_well(ranks, kGpu + Arguments{"--resume", third_step_});
    EXPECT_EQ(weights(), expected);
    std::filesystem::remove_all(saved_);
  }
}

// Neither a checkpoint nor a log line waits for a launch to be full: 5 steps an epoch, 4 a launch, a
// checkpoint after each third step, a line after every second.
TEST_F(CudaResumedRun, SavesAndLogsInTimeWithSeveralStepsALaunch) {
  const Arguments options{"--optimizer", "adamw", "--lr", "0.002", "--epochs", "4", "--log-every", "2"};
  const Arguments groups{"--steps-per-launch", "4"};
  const Arguments saving{"--checkpoint-dir", saved_, "--checkpoint-every", "3steps", "--keep", "9"};
  for (const int ranks : {1, 2}) {
    train_well(ranks, options + kGpu);
    const std::string expected = weights();
    const std::vector<double> losses = losses_of_steps();
    train_well(ranks, options + kGpu + groups + saving);
    EXPECT_EQ(weights(), expected);
    EXPECT_EQ(losses_of_steps(), losses);
    EXPECT_GE(losses.size(), 4U);
    train_well(ranks, kGpu + Arguments{"--resume", third_step_, "--steps-per-launch", "3"});
    EXPECT_EQ(weights(), expected) << "resumed from the third step with another number";
    std::filesystem::remove_all(saved_);
  }
}

TEST_F(CudaResumedRun, MovesBetweenCpuAndGpu) {
  train_well(1, kAdamW + kCpu);
  const std::vector<double> expected = losses_of_steps();
  ASSERT_EQ(expected.size(), 10U);
  for (const auto& [first, second] : {std::pair{kCpu, kGpu}, {kGpu, kCpu}}) {
    train_well(1, kAdamW + first + Arguments{"--checkpoint-dir", saved_, "--max-steps", "3"});
    train_well(1, second + Arguments{"--resume", third_step_, "--max-steps", "0", "--log-steps"});
    // As far apart as whole runs on either may be (CudaTrainProgram.GivesTheLossesOfTheCpu).
    EXPECT_THAT(losses_of_steps(), testing::Pointwise(testing::DoubleNear(1e-5), expected));
    std::filesystem::remove_all(saved_);
    std::filesystem::remove(log_);
  }
}

TEST_F(CudaResumedRun, TrainsTheSameWhereStepsMayBeSkippedAndNoneIs) {
  train_well(1, kAdamW + kGpu);
  const std::string expected = weights();
  train_well(1, kAdamW + kGpu + Arguments{"--on-nonfinite", "skip"});
  EXPECT_EQ(weights(), expected);
}

TEST_F(CudaResumedRun, LeavesOutUpdatesThatAreNotFiniteWhereAskedTo) {
  const ProgramResult result = train(1, kGpu + Arguments{"--lr", "1e30", "--max-steps", "3", "--on-nonfinite",
                                                         "skip", "--log-steps", "--log-every", "1"});
  EXPECT_EQ(occurrences(result.out, ", update left out"), 2U) << result.out;
  EXPECT_EQ(result.exit_code, 65);  // what is left after the first update cannot be evaluated
}

TEST_F(CudaResumedRun, IsNotSpoiltByAStepThatIsNotFinite) {
  const ProgramResult result = train(2, kGpu + Arguments{"--lr", "1e30", "--checkpoint-dir", saved_,
                                                         "--checkpoint-every", "1step", "--epochs", "5"});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_THAT(result.err, HasSubstr("step 2 of epoch 1 (step 2 of the run)"));
  EXPECT_THAT(result.err, HasSubstr("rank 1: loss"));
  EXPECT_TRUE(std::filesystem::exists(saved_ + "/step-000000001.h5"));
  EXPECT_FALSE(std::filesystem::exists(saved_ + "/step-000000002.h5"));
}

TEST_F(CudaResumedRun, StopsAtTheTimeLimitOnAllRanks) {
  const ProgramResult result = train(2, kGpu + Arguments{"--epochs", "100000", "--checkpoint-dir", saved_,
                                                         "--time-limit", "5s", "--steps-per-launch", "8"});
  EXPECT_EQ(result.exit_code, 75) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Stopped by the time limit after step "));
  EXPECT_FALSE(std::filesystem::is_empty(saved_));
}

}  // namespace
}  // namespace convnet
