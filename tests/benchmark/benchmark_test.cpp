#include <gtest/gtest.h>

#include <hwy/targets.h>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/run_program.hpp"

namespace convnet {
namespace {

// A product and a sum for each of 16 x 28 x 28 outputs x 25 weights (output and gradient of the weights),
// 32 x 14 x 14 outputs x 16 x 25 weights and 10 x 1568 weights (and gradient of the input).
constexpr double kOperationsPerImage =
    2.0 * (2.0 * 16 * 28 * 28 * 25 + 3.0 * 32 * 14 * 14 * 16 * 25 + 3.0 * 10 * 1568);

constexpr double kDataSetMegabytes = 70000 * (28 * 28 + 4) / 1e6;  // a byte a pixel, four a label

nlohmann::json benchmark(const Arguments& arguments) {
  const ProgramResult result = run_command(Arguments{CONVNET_BENCHMARK, "--data", CONVNET_MNIST} + arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 1) << result.out;
  return nlohmann::json::parse(result.out);
}

TEST(Benchmark, PrintsOneJsonLineOfFiniteFigures) {
  const auto line = benchmark({"--threads", "2", "--batch", "10", "--steps", "20"});

  EXPECT_EQ(line.at("ranks"), 1);
  EXPECT_EQ(line.at("threads"), 2);
  EXPECT_EQ(line.at("batch"), 10);
  EXPECT_EQ(line.at("steps"), 20);
  for (const char* name : {"version", "build", "libraries", "instruction_set"}) {
    EXPECT_FALSE(line.at(name).get<std::string>().empty()) << name;
  }
  for (const char* name :
       {"ms_per_step", "ms_per_step_min", "forward_backward_ms", "exchange_ms", "update_ms", "images_per_s",
        "gflops", "peak_gflops", "share_of_peak", "all_reduce_ms", "peak_memory_mb", "data_set_mb"}) {
    const double figure = line.at(name);  // throws where there is none, or null in its place
    EXPECT_TRUE(std::isfinite(figure) && figure > 0.0) << name << " " << figure;
  }
}

TEST(Benchmark, CountsTheOperationsOfAnImageAsDoneByHand) {
  const auto line = benchmark({"--batch", "10", "--steps", "20"});

  const double images_per_second = line.at("images_per_s");
  const double gflops = line.at("gflops");
  EXPECT_NEAR(gflops * 1e9 / images_per_second / kOperationsPerImage, 1.0, 1e-12);
  EXPECT_NEAR(images_per_second * line.at("ms_per_step").get<double>(), 10 * 1e3, 1e-6);
  EXPECT_NEAR(line.at("share_of_peak").get<double>() * line.at("peak_gflops").get<double>(), gflops, 1e-9);
  EXPECT_GE(line.at("ms_per_step"), line.at("ms_per_step_min"));
}

TEST(Benchmark, HoldsTheDataSetWithinItsPeakOfMemory) {
  const auto line = benchmark({"--batch", "10", "--steps", "20"});

  EXPECT_NEAR(line.at("data_set_mb"), kDataSetMegabytes, 1e-9);
  EXPECT_GT(line.at("peak_memory_mb"), kDataSetMegabytes);
}

TEST(Benchmark, UsesNothingBeyondAvx2WhereAskedTo) {
  if ((hwy::SupportedTargets() & HWY_AVX2) == 0) {
    GTEST_SKIP() << "this processor has no AVX2";
  }
  const ProgramResult result =
      run_command({"env", "ONEDNN_VERBOSE=1", CONVNET_BENCHMARK, "--data", CONVNET_MNIST, "--batch", "10",
                   "--steps", "20", "--isa", "avx2"});

  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("\"instruction_set\":\"AVX2\""), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("convolution,jit:avx2,"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("avx512"), std::string::npos) << result.out;
}

TEST(Benchmark, DoesAsManyStepsAsAskedAndNoMoreWhereNothingIsTimed) {
  const ProgramResult result = run_command({"env", "ONEDNN_VERBOSE=1", CONVNET_BENCHMARK, "--data",
                                            CONVNET_MNIST, "--batch", "10", "--steps", "3", "--only-steps"});

  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(occurrences(result.out, ",backward_weights,"), 3U) << result.out;
  EXPECT_EQ(result.out.find("ms_per_step"), std::string::npos) << result.out;
}

TEST(Benchmark, RefusesABatchThatARankCannotFill) {
  const ProgramResult result = run_command({CONVNET_BENCHMARK, "--data", CONVNET_MNIST, "--batch", "60001"});

  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find("a rank has only 60000 images"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace convnet
