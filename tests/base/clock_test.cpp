#include "base/clock.hpp"

#include <gtest/gtest.h>

namespace convnet {
namespace {

TEST(Clock, SpellsSecondsAsHoursMinutesAndHundredths) {
  EXPECT_EQ(format_duration(0.0), "0:00:00.00");
  EXPECT_EQ(format_duration(26.12), "0:00:26.12");
  EXPECT_EQ(format_duration(59.999), "0:01:00.00");
  EXPECT_EQ(format_duration(3661.5), "1:01:01.50");
  EXPECT_EQ(format_duration(100 * 3600.0), "100:00:00.00");
}

}  // namespace
}  // namespace convnet
