#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compute/backend_test.hpp"
#include "compute/judge.hpp"
#include "compute/random_values.hpp"
#include "compute/tolerance.hpp"

namespace convnet {
namespace {

struct Case {
  int batch;
  ImageShape input;
  int classes;
};

std::vector<Case> cases() {
  return {{3, {4, 2, 5}, 10},
          {1, {32, 7, 6}, 47},
          {17, {3, 5, 1}, 1},
          {8, {47, 1, 3}, 62},
          {100, {32, 7, 7}, 10}};
}

class Linear : public BackendTest {};

TEST_P(Linear, GivesOutputsAndGradientsAsTheJudge) {
  const auto operations = GetParam().make_operations();
  for (const Case& c : cases()) {
    SCOPED_TRACE(std::to_string(c.batch) + " x " + to_string(c.input) + " to " + std::to_string(c.classes));
    const Floats x = random_values(c.batch * c.input.size(), -1.0F, 1.0F, 1);
    const Floats weights = random_values(c.classes * c.input.size(), -1.0F, 1.0F, 2);
    const Floats bias = random_values(c.classes, -1.0F, 1.0F, 3);
    const Floats dy = random_values(std::int64_t{c.batch} * c.classes, -1.0F, 1.0F, 4);
    const LinearPass found = operations->linear(c.batch, c.input, x, weights, bias, dy);

    const auto inputs = static_cast<double>(c.input.size());
    EXPECT_TRUE(all_within(
        found.y, judge::linear_forward(doubles(x), doubles(weights), doubles(bias)),
        tolerances(inputs + 1, judge::linear_forward(absolute(x), absolute(weights), absolute(bias)))));
    const auto expected = judge::linear_backward(doubles(x), doubles(weights), doubles(dy), c.classes);
    const auto sizes = judge::linear_backward(absolute(x), absolute(weights), absolute(dy), c.classes);
    EXPECT_TRUE(all_within(found.dweights, expected.dweights, tolerances(c.batch, sizes.dweights)));
    EXPECT_TRUE(all_within(found.dbias, expected.dbias, tolerances(c.batch, sizes.dbias)));
    EXPECT_TRUE(all_within(found.dx, expected.dx, tolerances(c.classes, sizes.dx)));
  }
}

TEST_P(Linear, PassesANanOnToTheOutputsOfItsImage) {
  Floats x = random_values(3 * 8, -1.0F, 1.0F, 1);
  x[13] = std::numeric_limits<float>::quiet_NaN();
  const auto pass =
      GetParam().make_operations()->linear(3, {2, 2, 2}, x, Floats(5 * 8, 0.0F), Floats(5), Floats(15));
  for (std::size_t i = 0; i < pass.y.size(); ++i) {
    EXPECT_EQ(std::isnan(pass.y[i]), i / 5 == 1) << "output " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Linear, testing::ValuesIn(all_backends()), backend_name);

}  // namespace
}  // namespace convnet
