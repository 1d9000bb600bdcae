#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compute/backend_test.hpp"
#include "compute/judge.hpp"
#include "compute/random_values.hpp"
#include "compute/tolerance.hpp"

namespace convnet {
namespace {

judge::Images images(const NormReluPoolInput& in) {
  judge::Images result(in.batch, in.shape);
  result.values = doubles(in.x);
  return result;
}

judge::Norm norm(const NormReluPoolInput& in) {
  return {doubles(in.gamma), doubles(in.beta), doubles(in.running_mean), doubles(in.running_var)};
}

double largest(std::span<const float> values) {
  return std::ranges::max(absolute(values));
}

// The gradient of the output, random.
Floats random_gradient(const NormReluPoolInput& in) {
  const ImageShape pooled{in.shape.channels, in.shape.height / 2, in.shape.width / 2};
  return random_values(in.batch * pooled.size(), -1.0F, 1.0F, 99);
}

NormReluPoolInput input_with(int batch, const ImageShape& shape, Floats x) {
  const auto channels = static_cast<std::size_t>(shape.channels);
  return {.batch = batch,
          .shape = shape,
          .x = std::move(x),
          .gamma = Floats(channels, 1.0F),
          .beta = Floats(channels, 0.0F),
          .running_mean = Floats(channels, 0.0F),
          .running_var = Floats(channels, 1.0F)};
}

// Random input whose decisions (which maximum, cut off or not) are clearer than any rounding.
NormReluPoolInput random_input(int batch, const ImageShape& shape) {
  for (std::uint64_t seed = 1;; seed += 10) {
    auto in = input_with(batch, shape, random_values(batch * shape.size(), -2.0F, 3.0F, seed));
    in.gamma = random_values(shape.channels, -1.0F, 1.5F, seed + 1);
    in.beta = random_values(shape.channels, -0.5F, 1.0F, seed + 2);
    in.running_mean = random_values(shape.channels, -1.0F, 1.0F, seed + 3);
    in.running_var = random_values(shape.channels, 0.5F, 2.0F, seed + 4);
    judge::Norm copy = norm(in);
    const double training = norm_relu_pool_forward(images(in), copy).margin;
    const double inference = norm_relu_pool_infer(images(in), norm(in)).margin;
    if (std::min(training, inference) > tolerance(100.0, 1.0)) {
      return in;
    }
  }
}

// Numbers of channels below, at and above vector widths; odd heights and widths; batches of 1.
std::vector<NormReluPoolInput> inputs() {
  return {random_input(4, {1, 7, 5}),  random_input(1, {3, 6, 9}),  random_input(2, {5, 8, 3}),
          random_input(3, {16, 5, 7}), random_input(1, {17, 4, 6}), random_input(5, {32, 3, 4}),
          random_input(2, {47, 9, 2})};
}

// What the judge makes of an input, and the magnitudes that rounding errors are relative to.
struct Verdict {
  explicit Verdict(const NormReluPoolInput& in)
      : after(norm(in)),
        forward(norm_relu_pool_forward(images(in), after)),
        terms(static_cast<double>(in.batch * in.shape.pixels())),
        spread(std::ranges::max(forward.deviation)),
        normalised((largest(in.x) + std::abs(std::ranges::max(forward.mean))) /
                   std::ranges::min(forward.deviation)),
        output(largest(in.gamma) * normalised + largest(in.beta)) {}

  judge::Norm after;  // its running statistics have stepped
  judge::NormReluPool forward;
  double terms;       // that each statistic is a sum of
  double spread;      // of x
  double normalised;  // |x| + |mean|, in deviations
  double output;
};

class NormReluPool : public BackendTest {
 protected:
  // Compares a whole pass with the judge's.
  void expect_as_judged(const NormReluPoolInput& in, const Floats& dy) {
    SCOPED_TRACE(std::to_string(in.batch) + " images of " + to_string(in.shape));
    const Verdict verdict(in);
    const double terms = verdict.terms;
    const auto gradients = norm_relu_pool_backward(images(in), norm(in), verdict.forward, doubles(dy));
    const NormReluPoolPass found = GetParam().make_operations()->norm_relu_pool(in, dy);
    EXPECT_TRUE(all_within(found.y, verdict.forward.y.values, tolerance(terms, verdict.output)));
    EXPECT_TRUE(all_within(found.running_mean, verdict.after.running_mean,
                           tolerance(terms, largest(in.running_mean) + largest(in.x))));
    const double variance = verdict.spread * (verdict.spread + largest(in.x));
    EXPECT_TRUE(all_within(found.running_var, verdict.after.running_var,
                           tolerance(terms, largest(in.running_var) + variance)));
    const double gradient_sum = terms / 4.0 * largest(dy);  // one pixel of a window passes it on
    EXPECT_TRUE(all_within(found.dbeta, gradients.dbeta, tolerance(terms, gradient_sum)));
    EXPECT_TRUE(
        all_within(found.dgamma, gradients.dgamma, tolerance(terms, gradient_sum * verdict.normalised)));
    const double steepest = largest(in.gamma) / std::ranges::min(verdict.forward.deviation);
    const double through_statistics = verdict.normalised * verdict.normalised;
    EXPECT_TRUE(all_within(found.dx, gradients.dx.values,
                           tolerance(terms, steepest * largest(dy) * (1.0 + through_statistics))));
  }
};

TEST_P(NormReluPool, NormalisesWithTheStatisticsOfTheBatchAndGivesTheGradients) {
  for (const NormReluPoolInput& in : inputs()) {
    expect_as_judged(in, random_gradient(in));
  }
}

TEST_P(NormReluPool, NormalisesWithTheRunningStatisticsInInference) {
  const auto operations = GetParam().make_operations();
  for (const NormReluPoolInput& in : inputs()) {
    SCOPED_TRACE(to_string(in.shape));
    const auto expected = norm_relu_pool_infer(images(in), norm(in));
    const double magnitude = largest(in.gamma) * (largest(in.x) + largest(in.running_mean)) /
                                 std::ranges::min(expected.deviation) +
                             largest(in.beta);
    constexpr double kRoundings = 4.0;
    EXPECT_TRUE(all_within(operations->norm_relu_pool_infer(in), expected.y.values,
                           tolerance(kRoundings, magnitude)));
  }
}

TEST_P(NormReluPool, StepsTheRunningStatisticsByATenthOfTheUnbiasedOnes) {
  const auto in = input_with(1, {1, 2, 2}, {1.0F, 2.0F, 3.0F, 4.0F});
  const auto pass = GetParam().make_operations()->norm_relu_pool(in, {1.0F});
  EXPECT_FLOAT_EQ(pass.running_mean[0], 0.25F);
  EXPECT_FLOAT_EQ(pass.running_var[0], 0.9F + 0.1F * 5.0F / 3.0F);
}

TEST_P(NormReluPool, IsFiniteForOneValueAChannel) {
  const auto in = input_with(1, {3, 1, 1}, {5.0F, -7.0F, 0.0F});
  const auto pass = GetParam().make_operations()->norm_relu_pool(in, {});
  EXPECT_TRUE(all_within(pass.running_mean, judge::Doubles{0.5, -0.7, 0.0}, tolerance(1.0, 1.0)));
  EXPECT_TRUE(all_within(pass.running_var, judge::Doubles{0.9, 0.9, 0.9}, tolerance(1.0, 1.0)));
  EXPECT_EQ(pass.dx, Floats(3, 0.0F));
}

TEST_P(NormReluPool, KeepsItsDigitsWhereTheMeanIsLargeBesideTheDeviation) {
  constexpr float kMean = 1000.0F;
  auto in = input_with(3, {5, 8, 7}, random_values(3 * 5 * 8 * 7, kMean - 1.0F, kMean + 1.0F, 5));
  in.beta.assign(5, 3.0F);  // above the ReLU
  const Verdict verdict(in);
  const auto found = GetParam().make_operations()->norm_relu_pool(in, random_gradient(in));
  EXPECT_TRUE(all_within(found.y, verdict.forward.y.values, tolerance(verdict.terms, verdict.output)));
  EXPECT_TRUE(all_within(found.running_var, verdict.after.running_var,
                         tolerance(verdict.terms, verdict.spread * kMean)));
}

TEST_P(NormReluPool, GivesTheGradientToTheFirstOfEqualMaxima) {
  auto in = input_with(3, {17, 7, 6}, {});
  for (const float value : random_values(3 * 17 * 7 * 6, 0.0F, 3.0F, 6)) {
    in.x.push_back(std::floor(value));  // 0, 1 or 2: most windows have several maxima
  }
  in.beta.assign(17, 2.5F);
  expect_as_judged(in, random_gradient(in));
}

TEST_P(NormReluPool, GivesTheGradientToTheFirstPixelOfAWindowInOneColour) {
  auto in = input_with(1, {1, 2, 4}, {1.0F, 1.0F, 3.0F, 3.0F, 1.0F, 1.0F, 3.0F, 3.0F});
  in.beta = {2.0F};
  const Floats dx = GetParam().make_operations()->norm_relu_pool(in, {1.0F, 0.0F}).dx;
  // Mean 2, variance 1, normalised -1 and 1: mean gradient 1/8, mean product -1/8.
  const double scale = 1.0 / std::sqrt(1.0 + 1e-5);
  const double statistics = 0.125 + 0.125 * scale * scale;
  const double other = -(0.125 - 0.125 * scale * scale) * scale;
  const judge::Doubles expected{scale * (1.0 - statistics), -scale * statistics, other, other,
                                -scale * statistics,        -scale * statistics, other, other};
  EXPECT_TRUE(all_within(dx, expected, tolerance(8.0, 4.0)));
  EXPECT_EQ(dx[1], dx[4]);
  EXPECT_EQ(dx[1], dx[5]);
  EXPECT_EQ(dx[2], dx[3]);
}

TEST_P(NormReluPool, GivesTheFirstPixelOfABlankImageTheGradient) {
  auto in = input_with(2, {3, 4, 4}, Floats(2 * 3 * 4 * 4, 0.5F));
  in.beta.assign(3, 1.0F);
  const Floats dy = random_gradient(in);
  const auto found = GetParam().make_operations()->norm_relu_pool(in, dy);
  EXPECT_EQ(found.y, Floats(2 * 3 * 2 * 2, 1.0F));
  expect_as_judged(in, dy);
}

TEST_P(NormReluPool, GivesNoGradientWhereTheReluCutsOff) {
  auto in = random_input(2, {5, 6, 4});
  in.beta.assign(5, -100.0F);
  const auto pass = GetParam().make_operations()->norm_relu_pool(in, random_gradient(in));
  EXPECT_EQ(pass.y, Floats(pass.y.size(), 0.0F));
  EXPECT_EQ(pass.dgamma, Floats(5, 0.0F));
  EXPECT_EQ(pass.dbeta, Floats(5, 0.0F));
  EXPECT_EQ(pass.dx, Floats(pass.dx.size(), 0.0F));
}

TEST_P(NormReluPool, PassesANanOnToItsWholeChannelInTraining) {
  auto in = random_input(2, {19, 4, 5});
  const judge::Images places(2, in.shape);
  in.x[places.index(1, 17, 2, 3)] = std::numeric_limits<float>::quiet_NaN();
  const auto pass = GetParam().make_operations()->norm_relu_pool(in, random_gradient(in));
  for (std::size_t i = 0; i < pass.y.size(); ++i) {
    EXPECT_EQ(std::isnan(pass.y[i]), i / 4 % 19 == 17) << "output " << i;
  }
  for (std::size_t i = 0; i < pass.dx.size(); ++i) {
    EXPECT_EQ(std::isnan(pass.dx[i]), i / 20 % 19 == 17) << "gradient " << i;
  }
}

TEST_P(NormReluPool, PassesANanOnFromEveryPlaceOfAWindow) {
  const auto operations = GetParam().make_operations();
  for (std::size_t place = 0; place < 4; ++place) {
    auto in = input_with(1, {1, 2, 2}, {1.0F, 2.0F, 3.0F, 4.0F});
    in.x[place] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(operations->norm_relu_pool_infer(in)[0])) << "place " << place;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, NormReluPool, testing::ValuesIn(all_backends()), backend_name);

}  // namespace
}  // namespace convnet
