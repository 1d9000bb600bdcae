#include "convnet/network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convnet/error.hpp"

namespace convnet {
namespace {

TEST(Network, FollowsMnistThroughItsBlocks) {
  const Network network = tutorial_network({1, 28, 28}, 10);
  EXPECT_EQ(network.blocks[0].convolved(network.input), (ImageShape{16, 28, 28}));
  EXPECT_EQ(network.block_input(1), (ImageShape{16, 14, 14}));
  EXPECT_EQ(network.block_input(2), (ImageShape{32, 7, 7}));
  EXPECT_EQ(network.block_input(2).size(), 7 * 7 * 32);
}

TEST(Network, DropsOddRowsAndColumnsInPooling) {
  const Network network = tutorial_network({3, 33, 18}, 62);
  EXPECT_EQ(network.block_input(1), (ImageShape{16, 16, 9}));
  EXPECT_EQ(network.block_input(2), (ImageShape{32, 8, 4}));
}

TEST(Network, ShrinksWhereThePaddingIsLessThanHalfTheKernel) {
  const ConvBlock block{.out_channels = 4, .kernel = 3, .padding = 0};
  EXPECT_EQ(block.convolved({2, 10, 7}), (ImageShape{4, 8, 5}));
  EXPECT_EQ(block.output({2, 10, 7}), (ImageShape{4, 4, 2}));
}

TEST(Network, RefusesImagesTooSmallToPoolTwice) {
  EXPECT_EQ(tutorial_network({1, 4, 4}, 2).block_input(2), (ImageShape{32, 1, 1}));
  try {
    tutorial_network({1, 28, 3}, 10);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_THAT(error.what(), testing::HasSubstr("1 x 28 x 3"));
    EXPECT_THAT(error.what(), testing::HasSubstr("4 x 4"));
  }
}

TEST(Network, RefusesToHaveNoClass) {
  EXPECT_THROW(tutorial_network({1, 28, 28}, 0), Error);
}

}  // namespace
}  // namespace convnet
