#include "convnet/error.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace convnet {
namespace {

TEST(Error, CarriesCodeMessageAndPlace) {
  const int line = __LINE__ + 1;
  const Error error(ExitCode::kData, "images.gz has 3 bytes: expected 16");
  EXPECT_EQ(error.code(), ExitCode::kData);
  EXPECT_STREQ(error.what(), "images.gz has 3 bytes: expected 16");
  EXPECT_TRUE(error.location().ends_with("error_test.cpp:" + std::to_string(line))) << error.location();
  EXPECT_FALSE(error.is_on_every_rank());
}

TEST(Error, RemembersThatAllRanksThrowIt) {
  try {
    throw Error(ExitCode::kUsage, "the options differ").on_every_rank();
  } catch (const Error& error) {
    EXPECT_TRUE(error.is_on_every_rank());
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_STREQ(error.what(), "the options differ");
  }
}

TEST(Error, SaysWhichSystemCallFailedAndWhy) {
  errno = EACCES;
  const Error error = system_error("model.h5", "open");
  EXPECT_EQ(error.code(), ExitCode::kIo);
  EXPECT_STREQ(error.what(), "model.h5: cannot open: Permission denied");
}

}  // namespace
}  // namespace convnet
