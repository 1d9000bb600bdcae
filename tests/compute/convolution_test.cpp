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
  ConvBlock block;
};

// Kernels of 1, 3 and 5, with and without padding; numbers of channels below, at and above vector widths.
std::vector<Case> cases() {
  return {{2, {3, 7, 5}, {.out_channels = 4, .kernel = 3, .padding = 1}},
          {1, {1, 6, 9}, {.out_channels = 5, .kernel = 5, .padding = 2}},
          {3, {16, 5, 8}, {.out_channels = 17, .kernel = 1, .padding = 0}},
          {4, {5, 9, 7}, {.out_channels = 32, .kernel = 3, .padding = 1}},
          {2, {17, 8, 6}, {.out_channels = 3, .kernel = 5, .padding = 2}},
          {3, {47, 4, 5}, {.out_channels = 16, .kernel = 3, .padding = 0}},
          {2, {32, 6, 7}, {.out_channels = 47, .kernel = 5, .padding = 0}},
          {7, {3, 1, 2}, {.out_channels = 1, .kernel = 3, .padding = 1}},
          {5, {1, 28, 26}, {.out_channels = 16, .kernel = 5, .padding = 2}},
          {3, {1, 11, 8}, {.out_channels = 17, .kernel = 5, .padding = 0}},
          {2, {1, 7, 9}, {.out_channels = 47, .kernel = 5, .padding = 3}},
          {1, {1, 5, 5}, {.out_channels = 9, .kernel = 5, .padding = 0}},
          {6, {16, 14, 13}, {.out_channels = 32, .kernel = 5, .padding = 2}}};
}

// The inputs of one case, random.
struct Inputs {
  explicit Inputs(const Case& c)
      : x(random_values(c.batch * c.input.size(), -1.0F, 1.0F, 1)),
        weights(random_values(weight_count(c), -1.0F, 1.0F, 2)),
        bias(random_values(c.block.out_channels, -1.0F, 1.0F, 3)),
        dy(random_values(c.batch * c.block.convolved(c.input).size(), -1.0F, 1.0F, 4)) {}

  static std::int64_t weight_count(const Case& c) {
    return std::int64_t{c.block.out_channels} * c.input.channels * c.block.kernel * c.block.kernel;
  }

  Floats x, weights, bias, dy;
};

judge::Images images(const Case& c, const judge::Doubles& values) {
  judge::Images result(c.batch, c.input);
  result.values = values;
  return result;
}

judge::Images outputs(const Case& c, const judge::Doubles& values) {
  judge::Images result(c.batch, c.block.convolved(c.input));
  result.values = values;
  return result;
}

std::string describe(const Case& c) {
  return std::to_string(c.batch) + " images of " + to_string(c.input) + " to " +
         std::to_string(c.block.out_channels) + " channels, kernel " + std::to_string(c.block.kernel);
}

class Convolution : public BackendTest {};

TEST_P(Convolution, AddsUpTheProductsOfEachPosition) {
  const auto operations = GetParam().make_operations();
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const Inputs in(c);
    const auto expected =
        judge::convolution_forward(images(c, doubles(in.x)), c.block, doubles(in.weights), doubles(in.bias));
    const auto magnitudes = judge::convolution_forward(images(c, absolute(in.x)), c.block,
                                                       absolute(in.weights), absolute(in.bias));
    const double terms = c.input.channels * c.block.kernel * c.block.kernel + 1;
    EXPECT_TRUE(
        all_within(operations->convolution_forward(c.batch, c.input, c.block, in.x, in.weights, in.bias),
                   expected.values, tolerances(terms, magnitudes.values)));
  }
}

TEST_P(Convolution, GivesTheGradientOfTheWeights) {
  const auto operations = GetParam().make_operations();
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const Inputs in(c);
    const auto expected =
        judge::convolution_backward_weights(images(c, doubles(in.x)), outputs(c, doubles(in.dy)), c.block);
    const auto magnitudes =
        judge::convolution_backward_weights(images(c, absolute(in.x)), outputs(c, absolute(in.dy)), c.block);
    const auto terms = static_cast<double>(c.batch * c.block.convolved(c.input).pixels());
    EXPECT_TRUE(all_within(operations->convolution_backward_weights(c.batch, c.input, c.block, in.x, in.dy),
                           expected, tolerances(terms, magnitudes)));
  }
}

TEST_P(Convolution, GivesTheGradientOfTheData) {
  const auto operations = GetParam().make_operations();
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const Inputs in(c);
    const auto expected =
        judge::convolution_backward_data(outputs(c, doubles(in.dy)), c.input, c.block, doubles(in.weights));
    const auto magnitudes =
        judge::convolution_backward_data(outputs(c, absolute(in.dy)), c.input, c.block, absolute(in.weights));
    const double terms = c.block.out_channels * c.block.kernel * c.block.kernel;
    EXPECT_TRUE(
        all_within(operations->convolution_backward_data(c.batch, c.input, c.block, in.dy, in.weights),
                   expected.values, tolerances(terms, magnitudes.values)));
  }
}

// Equal sums in equal order: without it, which of several equal pixels wins a pooling window is up to chance.
TEST_P(Convolution, GivesEqualBitsToEqualInputsAtInteriorPositions) {
  const auto operations = GetParam().make_operations();
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    Inputs in(c);
    for (std::size_t i = 0; i < in.x.size(); ++i) {  // each channel of one colour
      const auto plane = static_cast<std::int64_t>(i) / c.input.pixels();
      in.x[i] = 0.1F + 0.3F * static_cast<float>(plane % c.input.channels);
    }
    const Floats y = operations->convolution_forward(c.batch, c.input, c.block, in.x, in.weights, in.bias);
    const judge::Images places(c.batch, c.block.convolved(c.input));
    const int edge = c.block.padding;
    for (int n = 0; n < c.batch; ++n) {
      for (int channel = 0; channel < places.shape.channels; ++channel) {
        for (int row = edge; row < places.shape.height - edge; ++row) {
          for (int column = edge; column < places.shape.width - edge; ++column) {
            ASSERT_EQ(y[places.index(n, channel, row, column)], y[places.index(0, channel, edge, edge)])
                << "image " << n << ", channel " << channel << ", row " << row << ", column " << column;
          }
        }
      }
    }
  }
}

TEST_P(Convolution, PassesANanOnToEveryOutputThatSeesIt) {
  const auto operations = GetParam().make_operations();
  for (const Case& c : {Case{2, {3, 7, 5}, {.out_channels = 4, .kernel = 3, .padding = 1}},
                        Case{2, {1, 9, 8}, {.out_channels = 19, .kernel = 5, .padding = 2}}}) {
    SCOPED_TRACE(describe(c));
    Inputs in(c);
    const judge::Images x(c.batch, c.input);
    in.x[x.index(1, c.input.channels - 1, 3, 4)] = std::numeric_limits<float>::quiet_NaN();
    const Floats y = operations->convolution_forward(c.batch, c.input, c.block, in.x, in.weights, in.bias);
    const judge::Images places(c.batch, c.block.convolved(c.input));
    const int reach = c.block.kernel / 2;
    for (int n = 0; n < c.batch; ++n) {
      for (int row = 0; row < places.shape.height; ++row) {
        for (int column = 0; column < places.shape.width; ++column) {
          const bool sees_it = n == 1 && std::abs(row - 3) <= reach && std::abs(column - 4) <= reach;
          EXPECT_EQ(std::isnan(y[places.index(n, 3, row, column)]), sees_it)
              << "image " << n << ", row " << row << ", column " << column;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Convolution, testing::ValuesIn(all_backends()), backend_name);

}  // namespace
}  // namespace convnet
