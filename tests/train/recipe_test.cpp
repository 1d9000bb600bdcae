// What the recipes reach on the real data, in one epoch.
#include <gtest/gtest.h>

#include "app/run_program.hpp"

namespace convnet {
namespace {

// The accuracy of the last evaluation, in percent.
double accuracy_of(const std::string& output) {
  const std::string before = "Test accuracy: ";
  const std::size_t at = output.rfind(before);
  return at == std::string::npos ? 0.0 : std::stod(output.substr(at + before.size()));
}

double train_one_epoch(const Arguments& options) {
  const ProgramResult result = run_command(
      Arguments{CONVNET_PROGRAM, "train", "--data", CONVNET_MNIST, "--device", "cpu", "--epochs", "1"} +
      options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return accuracy_of(result.out);
}

TEST(Recipe, OnecycleReadsNinetyEightPointEightPercentAfterOneEpoch) {
  EXPECT_GE(train_one_epoch({"--recipe", "onecycle"}), 98.8);
}

// With batch norm over all ranks and their learning rate, 1 rank x 800 is the mathematics of 8 ranks x 100.
TEST(Recipe, LargeReadsNinetyEightPointFivePercentOnAverageAfterSeventyFiveStepsOfEightHundred) {
  constexpr int kSeeds = 5;
  double sum = 0.0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    sum += train_one_epoch(
        {"--recipe", "large", "--batch", "800", "--lr", "0.8", "--seed", std::to_string(seed)});
  }
  EXPECT_GE(sum / kSeeds, 98.5);
}

}  // namespace
}  // namespace convnet
