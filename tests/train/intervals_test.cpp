#include "train/intervals.hpp"

#include <gtest/gtest.h>

#include "convnet/error.hpp"

namespace convnet {
namespace {

TEST(Interval, IsANumberAndAUnit) {
  const std::vector<std::pair<std::string, std::pair<std::int64_t, IntervalUnit>>> readings{
      {"500", {500, IntervalUnit::kSteps}},     {"500steps", {500, IntervalUnit::kSteps}},
      {"1 step", {1, IntervalUnit::kSteps}},    {"2epochs", {2, IntervalUnit::kEpochs}},
      {"1epoch", {1, IntervalUnit::kEpochs}},   {"10minutes", {10, IntervalUnit::kMinutes}},
      {"1 minute", {1, IntervalUnit::kMinutes}}};
  for (const auto& [text, expected] : readings) {
    const Interval interval = parse_interval(text);
    EXPECT_EQ(std::pair(interval.count, interval.unit), expected) << text;
  }
}

TEST(Interval, IsSpelledAsItIsRead) {
  for (const std::string text : {"500steps", "2epochs", "10minutes"}) {
    EXPECT_EQ(to_string(parse_interval(text)), text);
  }
}

TEST(Interval, RefusesAnythingElse) {
  for (const std::string text :
       {"", "0", "0steps", "-1", "steps", "5 hours", "5stepss", "1e3", "5 s", "99999999999"}) {
    EXPECT_THROW(parse_interval(text), Error) << text;
  }
}

TEST(Duration, IsReadAsPeopleAndSlurmWriteIt) {
  const std::vector<std::pair<std::string, double>> readings{
      {"30s", 30},       {"90m", 5400},          {"2h", 7200},       {"0:45", 45},     {"59:30", 3570},
      {"1:30:00", 5400}, {"2-12:00:00", 216000}, {"1-00:00", 86400}, {"UNLIMITED", 0}, {"0", 0}};
  for (const auto& [text, seconds] : readings) {
    EXPECT_EQ(parse_duration(text), seconds) << text;
  }
}

TEST(Duration, RefusesAnythingElse) {
  for (const std::string text :
       {"", "30", "-5s", "1.5h", "s", "1:2:3:4", "1:", ":30", "soon", "2-", "0s", "1d"}) {
    EXPECT_THROW(parse_duration(text), Error) << text;
  }
}

}  // namespace
}  // namespace convnet
