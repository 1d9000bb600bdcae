#include "train/epoch_part.hpp"

#include <gtest/gtest.h>

namespace convnet {
namespace {

constexpr SamplerOptions kTwoRanks{.sample_count = 101, .rank = 1, .world_size = 2, .batch = 10};

TEST(EpochPart, OfAWholeEpochHasAllItsStepsTheLastOneShort) {
  const EpochPart epoch(Sampler(kTwoRanks), {.epoch = 3, .global_step = 12});
  EXPECT_EQ(epoch.steps(), 6);  // 51 rows a rank
  EXPECT_EQ(epoch.rows().size(), 51U);
  EXPECT_EQ(epoch.rows_of(0).size(), 10U);
  EXPECT_EQ(epoch.rows_of(5).size(), 1U);
  EXPECT_EQ(epoch.rows_of(5).data(), epoch.rows().data() + 50);
  EXPECT_EQ(epoch.samples_of(0), 20);
  EXPECT_EQ(epoch.samples_of(5), 2);
  EXPECT_EQ(epoch.gradient_scale(5), 0.5F);
}

TEST(EpochPart, CountsSamplesWithoutTheirPadding) {
  const EpochPart epoch(Sampler(kTwoRanks), {.epoch = 3, .global_step = 12});
  EXPECT_EQ(epoch.after(0), (Position{.epoch = 3, .step = 1, .samples = 20, .global_step = 13}));
  EXPECT_EQ(epoch.after(4), (Position{.epoch = 3, .step = 5, .samples = 100, .global_step = 17}));
  EXPECT_EQ(epoch.after(5), (Position{.epoch = 3, .step = 6, .samples = 101, .global_step = 18}));
}

TEST(EpochPart, TakenUpHalfwayGoesOnCounting) {
  const EpochPart epoch(Sampler(kTwoRanks), {.epoch = 1, .step = 7, .samples = 70, .global_step = 7});
  EXPECT_EQ(epoch.steps(), 2);  // 31 samples left: 16 rows a rank
  EXPECT_EQ(epoch.after(0), (Position{.epoch = 1, .step = 8, .samples = 90, .global_step = 8}));
  EXPECT_EQ(epoch.after(1), (Position{.epoch = 1, .step = 9, .samples = 101, .global_step = 9}));
}

TEST(EpochPart, OfAnEpochThatIsOverHasNothing) {
  const EpochPart epoch(Sampler(kTwoRanks), {.epoch = 1, .step = 6, .samples = 101, .global_step = 6});
  EXPECT_EQ(epoch.steps(), 0);
  EXPECT_TRUE(epoch.rows().empty());
}

// Ranks whose shards of the file have 5 and 6 rows, of which 2 each are left out.
TEST(EpochPart, IsNotOverWhileOneRankHasAStepLeft) {
  const Sampler sampler(
      {.sample_count = 11, .world_size = 2, .batch = 1, .sharding = Sharding::kStatic, .tail = Tail::kExact});
  const EpochPart epoch(sampler, {.samples = 5});
  ASSERT_EQ(epoch.steps(), 4);
  EXPECT_EQ(epoch.after(2).samples, 10);
  EXPECT_EQ(epoch.after(3).samples, 11);
}

}  // namespace
}  // namespace convnet
