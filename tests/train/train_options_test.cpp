#include "train/train_options.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "convnet/error.hpp"

namespace convnet {
namespace {

TEST(TrainOptions, TheDefaultsAreTheTutorials) {
  const TrainOptions options = recipe_options("seed");
  EXPECT_EQ(options.epochs, 2);
  EXPECT_EQ(options.batch, 100);
  EXPECT_EQ(options.learning_rate, 1e-4);
  EXPECT_EQ(options.momentum, 0.0);
  EXPECT_EQ(options.seed, 0U);
  EXPECT_FALSE(options.reshuffle);
  EXPECT_EQ(to_json(options), to_json(TrainOptions()));
}

TEST(TrainOptions, LargeIsOnecycleAtAGreaterRateWithClippingAndBatchNormOverAllRanks) {
  nlohmann::ordered_json expected = to_json(recipe_options("onecycle"));
  expected.update({{"recipe", "large"},
                   {"lr", 0.283},
                   {"lr-scale", "sqrt"},
                   {"warmup", 0.3},
                   {"clip-norm", 0.5},
                   {"bn", "sync"}});
  EXPECT_EQ(to_json(recipe_options("large")), expected);
}

TEST(TrainOptions, AnUnknownRecipeIsAnError) {
  EXPECT_THROW(recipe_options("slow"), Error);
  EXPECT_THROW(recipe_options(""), Error);
}

TEST(TrainOptions, TheLearningRateScalesWithTheRanksAsAskedFor) {
  TrainOptions options;
  options.learning_rate = 0.5;
  EXPECT_EQ(peak_learning_rate(options, 16), 0.5);
  options.learning_rate_scale = LearningRateScale::kLinear;
  EXPECT_EQ(peak_learning_rate(options, 16), 8.0);
  options.learning_rate_scale = LearningRateScale::kSqrt;
  EXPECT_EQ(peak_learning_rate(options, 16), 2.0);
}

TEST(TrainOptions, TheRunEndsAfterItsEpochsOrItsStepsWhicheverComesFirst) {
  TrainOptions options;
  EXPECT_EQ(total_steps(options, 600), 1200);
  options.max_steps = 700;
  EXPECT_EQ(total_steps(options, 600), 700);
  options.max_steps = 1300;
  EXPECT_EQ(total_steps(options, 600), 1200);
}

}  // namespace
}  // namespace convnet
