#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/run_program.hpp"
#include "base/clock.hpp"

namespace convnet {
namespace {

constexpr int kSteps = 20;
const std::vector<std::string> kParts{"compute_ms", "communication_ms", "data_ms", "rest_ms"};

// What so many ranks print, and how long they took.
nlohmann::json measured(int ranks, double* seconds) {
  const Stopwatch stopwatch;
  const Arguments arguments{"--data", CONVNET_MNIST, "--steps", std::to_string(kSteps)};
  const ProgramResult result = run_command(job_command({{ranks, arguments}}, CONVNET_SCALING));
  *seconds = stopwatch.seconds();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(result.out);
}

TEST(ScalingMeasurement, PartsOfAStepAddUpAtOneRankAndTwo) {
  for (const int ranks : {1, 2}) {
    double seconds = 0.0;
    const nlohmann::json line = measured(ranks, &seconds);

    EXPECT_EQ(line.at("ranks"), ranks);
    EXPECT_EQ(line.at("steps"), kSteps);
    const double step =
        line.at("step").at("step_ms");  // throws for null, which JSON has for what is not finite
    double sum = 0.0;
    for (const std::string& part : kParts) {
      const double value = line.at("step").at(part);
      EXPECT_GE(value, 0.0) << part << ", which another part must have counted too";
      sum += value;
    }
    // Parts and step have clocks of their own: microseconds lie between them.
    EXPECT_NEAR(sum, step, 0.02 * step);
    EXPECT_LT(1e-3 * kSteps * step, seconds) << "no step is longer than the program that ran it";
  }
}

TEST(ScalingMeasurement, TimesTheAllReduceOfTheGradientAndOfEachSize) {
  double seconds = 0.0;
  const nlohmann::json line = measured(2, &seconds);

  // 29,034 parameters, loss and correct predictions, four bytes each.
  EXPECT_EQ(line.at("gradient_bytes"), 116144);
  std::vector<int> sizes;
  for (const nlohmann::json& time : line.at("all_reduce")) {
    sizes.push_back(time.at(0));
    EXPECT_GT(time.at(1), 0.0);
    EXPECT_LT(time.at(1), seconds);
  }
  EXPECT_EQ(sizes,
            (std::vector{1 << 10, 1 << 12, 1 << 14, 1 << 16, 116144, 1 << 18, 1 << 20, 1 << 22, 1 << 24}));
}

TEST(ScalingMeasurement, ExitCodesAreTheProjects) {
  EXPECT_EQ(run_command({CONVNET_SCALING}).exit_code, 2);
  EXPECT_EQ(run_command({CONVNET_SCALING, "--data", CONVNET_MNIST, "--steps", "0"}).exit_code, 2);
  EXPECT_EQ(run_command({CONVNET_SCALING, "--help"}).exit_code, 0);
  const Ranks one{1, {"--data", "no such file"}};
  EXPECT_EQ(run_command(job_command({one}, CONVNET_SCALING)).exit_code, 74);
}

}  // namespace
}  // namespace convnet
