#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "standin.hpp"

// The environment is read once, so that each of these asks in a process of its own: a death test's.

namespace standin {
namespace {

class Devices : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  void TearDown() override {
    for (const char* variable :
         {"CONVNET_STANDIN_DEVICES", "CONVNET_STANDIN_DRIVER", "CONVNET_STANDIN_CAPABILITY",
          "CUDA_VISIBLE_DEVICES", "CONVNET_STANDIN_REPORT", "CONVNET_STANDIN_FAIL"}) {
      unsetenv(variable);
    }
    GTEST_FLAG_SET(death_test_style, "fast");
  }

  // Ends the process, with success if the call did and there are as many devices.
  [[noreturn]] static void expect_devices(cudaError_t result, int count) {
    int counted = -1;
    const bool is_right = cudaGetDeviceCount(&counted) == result && counted == count;
    std::exit(is_right ? 0 : 1);
  }
};

TEST_F(Devices, ThereAreAsManyAsTheEnvironmentSays) {
  EXPECT_EXIT(expect_devices(cudaSuccess, 1), testing::ExitedWithCode(0), "");
  setenv("CONVNET_STANDIN_DEVICES", "4", 1);
  EXPECT_EXIT(expect_devices(cudaSuccess, 4), testing::ExitedWithCode(0), "");
  setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
  EXPECT_EXIT(expect_devices(cudaSuccess, 2), testing::ExitedWithCode(0), "");
  setenv("CUDA_VISIBLE_DEVICES", "2,7,0", 1);
  EXPECT_EXIT(expect_devices(cudaSuccess, 1), testing::ExitedWithCode(0), "");
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_EXIT(expect_devices(cudaErrorNoDevice, 0), testing::ExitedWithCode(0), "");
}

TEST_F(Devices, ADriverOlderThanTheRuntimeGivesNone) {
  setenv("CONVNET_STANDIN_DRIVER", "12040", 1);
  EXPECT_EXIT(expect_devices(cudaErrorInsufficientDriver, 0), testing::ExitedWithCode(0), "");
  setenv("CONVNET_STANDIN_DRIVER", "0", 1);
  EXPECT_EXIT(expect_devices(cudaErrorInsufficientDriver, 0), testing::ExitedWithCode(0), "");
}

TEST_F(Devices, AnOldDeviceHasNoKernels) {
  setenv("CONVNET_STANDIN_CAPABILITY", "7.5", 1);
  const auto ask = [] {
    cudaDeviceProp properties{};
    cudaFuncAttributes attributes{};
    const bool is_described = cudaGetDeviceProperties(&properties, 0) == cudaSuccess &&
                              properties.major == 7 && properties.minor == 5;
    const bool is_refused = cudaFuncGetAttributes(&attributes, nullptr) == cudaErrorNoKernelImageForDevice;
    std::exit(is_described && is_refused ? 0 : 1);
  };
  EXPECT_EXIT(ask(), testing::ExitedWithCode(0), "");
}

TEST_F(Devices, UuidsDifferAndFollowThePhysicalDevice) {
  setenv("CONVNET_STANDIN_DEVICES", "2", 1);
  setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
  const auto ask = [] {
    cudaDeviceProp first{};
    cudaDeviceProp second{};
    const bool is_success = cudaGetDeviceProperties(&first, 0) == cudaSuccess &&
                            cudaGetDeviceProperties(&second, 1) == cudaSuccess &&
                            cudaGetDeviceProperties(&second, 2) == cudaErrorInvalidDevice;
    const bool differ = std::string(first.uuid.bytes, 16) != std::string(second.uuid.bytes, 16);
    std::exit(is_success && differ && std::string(first.name) == "GPU stand-in (no GPU)" ? 0 : 1);
  };
  EXPECT_EXIT(ask(), testing::ExitedWithCode(0), "");
}

TEST_F(Devices, TheReportCountsCallsAndWhatLives) {
  const auto file = std::filesystem::temp_directory_path() / ("standin_report." + std::to_string(getpid()));
  // A death test's process begins the test anew, but must write where this one reads.
  setenv("CONVNET_STANDIN_REPORT", file.c_str(), 0);
  setenv("CONVNET_STANDIN_FAIL", "cudaMalloc:2", 1);
  const auto work = [] {
    void* memory = nullptr;
    cudaMalloc(&memory, 8);
    std::exit(cudaMalloc(&memory, 8) == cudaErrorMemoryAllocation ? 3 : 0);
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(3), "");
  std::stringstream report;
  report << std::ifstream(file).rdbuf();
  EXPECT_EQ(report.str(), "call cudaMalloc 2\nlive device memory 1\n");
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace standin
