#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "compute/operations.hpp"

namespace convnet {

// A test that runs over every back end, and says why where it cannot.
class BackendTest : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (GetParam().unavailable) {
      ASSERT_EQ(std::getenv("REQUIRE_GPU"), nullptr) << "REQUIRE_GPU is set: " << *GetParam().unavailable;
      GTEST_SKIP() << *GetParam().unavailable;
    }
  }
};

inline std::string backend_name(const testing::TestParamInfo<Backend>& info) {
  return info.param.name;
}

// How GoogleTest prints a back end.
inline void PrintTo(const Backend& backend, std::ostream* stream) {  // NOLINT(readability-identifier-naming)
  *stream << backend.name;
}

}  // namespace convnet
