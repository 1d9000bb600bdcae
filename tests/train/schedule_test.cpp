#include "train/schedule.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace convnet {
namespace {

using Rates = std::vector<std::pair<double, double>>;  // step, rate

void expect_rates(const Schedule& schedule, const Rates& rates) {
  for (const auto& [step, rate] : rates) {
    EXPECT_NEAR(schedule.learning_rate(step), rate, 1e-12) << "step " << step;
  }
}

// torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=n, pct_start=0.2,
// anneal_strategy='linear')
TEST(Schedule, OneCycleIsPyTorchs) {
  expect_rates(Schedule(ScheduleKind::kOneCycle, 0.05, 0.2, 100), {{0, 0.002},
                                                                   {1, 0.004526315789473684},
                                                                   {10, 0.027263157894736843},
                                                                   {19, 0.05},
                                                                   {20, 0.0493750025},
                                                                   {60, 0.024375102500000002},
                                                                   {98, 0.0006251974999999937},
                                                                   {99, 1.9999999999881224e-07}});
  expect_rates(Schedule(ScheduleKind::kOneCycle, 0.05, 0.2, 1800), {{0, 0.002},
                                                                    {100, 0.015370473537604458},
                                                                    {359, 0.05},
                                                                    {360, 0.04996527791666667},
                                                                    {1000, 0.027743144583333337},
                                                                    {1799, 1.9999999999881224e-07}});
}

// torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
TEST(Schedule, CosineIsPyTorchs) {
  expect_rates(Schedule(ScheduleKind::kCosine, 0.05, 0.0, 100), {{0, 0.05},
                                                                 {1, 0.04998766400914329},
                                                                 {25, 0.0426776695296637},
                                                                 {50, 0.025},
                                                                 {99, 1.2335990856710008e-05}});
}

// torch.optim.lr_scheduler.StepLR(optimizer, 30, 0.1) over 90 steps
TEST(Schedule, StepFallsToATenthAfterEachThird) {
  expect_rates(Schedule(ScheduleKind::kStep, 0.05, 0.0, 90),
               {{0, 0.05}, {29, 0.05}, {30, 0.005}, {59, 0.005}, {60, 0.0005}, {89, 0.0005}});
}

TEST(Schedule, ConstantStaysWhereItIs) {
  expect_rates(Schedule(ScheduleKind::kConstant, 1e-4, 0.0, 1200), {{0, 1e-4}, {600, 1e-4}, {1199, 1e-4}});
}

TEST(Schedule, WarmUpRisesInEqualStepsToThePeak) {
  expect_rates(Schedule(ScheduleKind::kConstant, 0.8, 0.25, 16),
               {{0, 0.2}, {1, 0.4}, {2, 0.6}, {3, 0.8}, {4, 0.8}});
  expect_rates(Schedule(ScheduleKind::kCosine, 0.8, 0.5, 8), {{0, 0.2}, {3, 0.8}, {4, 0.8}, {6, 0.4}});
}

TEST(Schedule, OneCycleWithoutWarmUpOnlyFalls) {
  const Schedule schedule(ScheduleKind::kOneCycle, 0.05, 0.0, 10);
  for (int step = 1; step < 10; ++step) {
    EXPECT_LT(schedule.learning_rate(step), schedule.learning_rate(step - 1));
  }
  EXPECT_GT(schedule.learning_rate(0), 0.04);
}

TEST(Schedule, OneCycleOfVeryFewStepsIsFinite) {
  for (int steps = 1; steps <= 12; ++steps) {
    const Schedule schedule(ScheduleKind::kOneCycle, 0.05, 0.2, steps);
    for (int step = 0; step < steps; ++step) {
      EXPECT_GE(schedule.learning_rate(step), 0.0);
      EXPECT_LE(schedule.learning_rate(step), 0.05);
    }
  }
}

}  // namespace
}  // namespace convnet
