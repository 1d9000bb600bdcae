// Ctrl-C: once, the run saves itself; twice, it ends at once, whatever it waits for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "lasting/kept_run.hpp"

namespace convnet {
namespace {

using testing::HasSubstr;

using Interrupt = KeptRun;

TEST_F(Interrupt, OnceSavesAndStops) {
  Job job(plan("pause=2000"));
  ASSERT_TRUE(wait_for_text(job, "Saved "));
  kill(job.launcher(), SIGINT);
  EXPECT_EQ(job.wait(), 75) << job.err();
  EXPECT_THAT(job.out(), HasSubstr("Stopped by SIGINT after step "));
  expect_good_end();
}

TEST_F(Interrupt, TwiceEndsARunAtOnceThatStillWrites) {
  Job job(plan("pause=1000 piece=256"));
  ASSERT_TRUE(wait_for_text(job, "Saved "));
  while (job.phase() != Phase::kWrite && !job.is_over()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(job.launcher(), SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));  // of some 300 that the write takes
  kill(job.launcher(), SIGINT);
  EXPECT_EQ(job.wait(), 130) << job.out() << job.err();
  EXPECT_THAT(job.err(), HasSubstr("interrupted twice"));
  expect_good_end();
}

TEST_F(Interrupt, TwiceEndsAJobAtOnceWhoseOtherRankHangs) {
  Job job(plan("", 2));
  ASSERT_TRUE(wait_for_text(job, "Saved "));
  const std::vector<pid_t> ranks = job.ranks();
  ASSERT_EQ(ranks.size(), 2U);
  kill(ranks[1], SIGSTOP);
  kill(ranks[0], SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // two at once would be one
  kill(ranks[0], SIGINT);
  EXPECT_EQ(job.wait(), 130) << job.out() << job.err();
  EXPECT_THAT(job.err(), HasSubstr("interrupted twice"));
}

}  // namespace
}  // namespace convnet
