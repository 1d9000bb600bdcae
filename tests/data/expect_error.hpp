#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "convnet/error.hpp"

namespace convnet {

// Runs `action` and expects an Error of this code whose message has all the parts.
inline void expect_error(const std::function<void()>& action, ExitCode code,
                         const std::vector<std::string>& parts) {
  try {
    action();
    ADD_FAILURE() << "no error, expected one with: " << testing::PrintToString(parts);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& part : parts) {
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
  }
}

}  // namespace convnet
