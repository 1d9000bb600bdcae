#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "compute/operations.hpp"

namespace convnet {

// Skips the test where there is a reason why it cannot run; with REQUIRE_GPU set that is a failure.
inline void skip_unless_available(const std::optional<std::string>& reason) {
  if (reason) {
    ASSERT_EQ(std::getenv("REQUIRE_GPU"), nullptr) << "REQUIRE_GPU is set: " << *reason;
    GTEST_SKIP() << *reason;
  }
}

// A test that runs over every back end, and says why where it cannot.
class BackendTest : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { skip_unless_available(GetParam().unavailable); }
};

inline std::string backend_name(const testing::TestParamInfo<Backend>& info) {
  return info.param.name;
}

// How GoogleTest prints a back end.
inline void PrintTo(const Backend& backend, std::ostream* stream) {  // NOLINT(readability-identifier-naming)
  *stream << backend.name;
}

}  // namespace convnet
