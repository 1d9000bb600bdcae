#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "compute/backend_test.hpp"
#include "compute/judge.hpp"
#include "compute/random_values.hpp"
#include "compute/tolerance.hpp"

namespace convnet {
namespace {

class SoftmaxCrossEntropy : public BackendTest {};

TEST_P(SoftmaxCrossEntropy, GivesLossAndGradientAsTheJudge) {
  const auto operations = GetParam().make_operations();
  for (const std::size_t classes : {1, 2, 10, 47}) {
    SCOPED_TRACE(classes);
    constexpr std::size_t kBatch = 33;
    constexpr float kLargestLogit = 8.0F;
    const Floats logits =
        random_values(static_cast<std::int64_t>(kBatch * classes), -kLargestLogit, kLargestLogit, classes);
    std::vector<std::int32_t> labels;
    for (std::size_t n = 0; n < kBatch; ++n) {
      labels.push_back(static_cast<std::int32_t>(n % classes));
    }
    const auto expected = judge::softmax_cross_entropy(doubles(logits), labels, 0.25);
    const LossPass found = operations->softmax_cross_entropy(logits, labels, 0.25F);
    EXPECT_EQ(found.correct, expected.correct);
    // A difference of logits is off by up to 2 x 8 u, and so, relatively, is its exponential.
    EXPECT_NEAR(found.loss_sum, expected.sum, tolerance(kBatch, kBatch * 2.0 * kLargestLogit));
    EXPECT_TRUE(all_within(found.dlogits, expected.dlogits,
                           tolerance(static_cast<double>(classes), 0.25 * 2.0 * kLargestLogit)));
  }
}

TEST_P(SoftmaxCrossEntropy, PredictsTheFirstOfEqualLogits) {
  const std::vector<std::int32_t> labels{0, 1, 2};
  const auto pass = GetParam().make_operations()->softmax_cross_entropy(
      {2.0F, 2.0F, 1.0F, 2.0F, 2.0F, 1.0F, 1.0F, 2.0F, 2.0F}, labels, 1.0F);
  EXPECT_EQ(pass.correct, 1);
}

TEST_P(SoftmaxCrossEntropy, IsLogTwoForTwoEqualLogitsHoweverLarge) {
  const auto operations = GetParam().make_operations();
  const std::vector<std::int32_t> labels{1};
  for (const float logit : {0.0F, 1e4F, -1e4F}) {
    const auto pass = operations->softmax_cross_entropy({logit, logit}, labels, 0.5F);
    EXPECT_NEAR(pass.loss_sum, std::numbers::ln2, tolerance(2.0, 1.0)) << logit;
    EXPECT_TRUE(all_within(pass.dlogits, judge::Doubles{0.25, -0.25}, tolerance(2.0, 1.0))) << logit;
  }
}

TEST_P(SoftmaxCrossEntropy, IsTheDistanceOfLogitsThatAreFarApart) {
  const std::vector<std::int32_t> labels{1, 0};
  const auto pass =
      GetParam().make_operations()->softmax_cross_entropy({500.0F, -500.0F, 500.0F, -500.0F}, labels, 1.0F);
  EXPECT_FLOAT_EQ(static_cast<float>(pass.loss_sum), 1000.0F);
  EXPECT_EQ(pass.correct, 1);
  EXPECT_EQ(pass.dlogits, (Floats{1.0F, -1.0F, 0.0F, 0.0F}));
}

TEST_P(SoftmaxCrossEntropy, IsNanForALogitThatIsNan) {
  const auto operations = GetParam().make_operations();
  const std::vector<std::int32_t> labels{2};
  for (std::size_t place = 0; place < 3; ++place) {
    Floats logits{1.0F, 2.0F, 3.0F};
    logits[place] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(operations->softmax_cross_entropy(logits, labels, 1.0F).loss_sum)) << place;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SoftmaxCrossEntropy, testing::ValuesIn(all_backends()), backend_name);

}  // namespace
}  // namespace convnet
