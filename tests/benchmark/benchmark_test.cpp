#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/run_program.hpp"

namespace convnet {
namespace {

// A product and a sum for each of 16 x 28 x 28 outputs x 25 weights (output and gradient of the weights),
// 32 x 14 x 14 outputs x 16 x 25 weights and 10 x 1568 weights (and gradient of the input).
constexpr double kOperationsPerImage =
    2.0 * (2.0 * 16 * 28 * 28 * 25 + 3.0 * 32 * 14 * 14 * 16 * 25 + 3.0 * 10 * 1568);

TEST(Benchmark, PrintsOneJsonLineWhoseFiguresAgree) {
  const ProgramResult result = run_command(
      {CONVNET_BENCHMARK, "--data", CONVNET_MNIST, "--threads", "2", "--batch", "10", "--steps", "20"});

  ASSERT_EQ(result.exit_code, 0) << result.err;
  ASSERT_EQ(std::ranges::count(result.out, '\n'), 1) << result.out;
  const auto line = nlohmann::json::parse(result.out);
  EXPECT_EQ(line.at("ranks"), 1);
  EXPECT_EQ(line.at("threads"), 2);
  EXPECT_EQ(line.at("batch"), 10);
  EXPECT_EQ(line.at("steps"), 20);
  EXPECT_TRUE(line.at("instruction_set").is_string());
  EXPECT_TRUE(line.at("version").is_string());
  EXPECT_GT(line.at("ms_per_step_min"), 0.0);
  EXPECT_GE(line.at("ms_per_step"), line.at("ms_per_step_min"));
  EXPECT_GT(line.at("all_reduce_ms"), 0.0);
  const double images_per_second = line.at("images_per_s");
  EXPECT_NEAR(images_per_second * line.at("ms_per_step").get<double>(), 10 * 1e3, 1e-6);
  const double gflops = line.at("gflops");
  EXPECT_NEAR(gflops * 1e9, images_per_second * kOperationsPerImage, 1.0);
  EXPECT_NEAR(line.at("share_of_peak").get<double>() * line.at("peak_gflops").get<double>(), gflops, 1e-9);
}

TEST(Benchmark, RefusesABatchThatARankCannotFill) {
  const ProgramResult result = run_command({CONVNET_BENCHMARK, "--data", CONVNET_MNIST, "--batch", "60001"});

  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find("a rank has only 60000 images"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace convnet
