#include "libraries/values.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace standin::libraries {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Values, RoundToTheNearestTiesToEven) {
  EXPECT_EQ(round_to_tf32(1.0F + 0x1p-11F), 1.0F);
  EXPECT_EQ(round_to_tf32(1.0F + 0x1p-11F + 0x1p-20F), 1.0F + 0x1p-10F);
  EXPECT_EQ(round_to_tf32(-1.0F - 0x3p-11F), -1.0F - 0x1p-9F);
  EXPECT_EQ(from_bfloat16(to_bfloat16(1.0F + 0x1p-8F)), 1.0F);
  EXPECT_EQ(from_bfloat16(to_bfloat16(1.0F + 0x1p-8F + 0x1p-20F)), 1.0F + 0x1p-7F);
  EXPECT_EQ(from_bfloat16(to_bfloat16(-1.0F - 0x3p-8F)), -1.0F - 0x1p-6F);
}

TEST(Values, KeepWhatIsNotFinite) {
  EXPECT_EQ(round_to_tf32(-kInfinity), -kInfinity);
  EXPECT_EQ(from_bfloat16(to_bfloat16(kInfinity)), kInfinity);
  EXPECT_EQ(from_bfloat16(to_bfloat16(std::numeric_limits<float>::max())), kInfinity);
  EXPECT_TRUE(std::isnan(round_to_tf32(kNan)));
  EXPECT_TRUE(std::isnan(from_bfloat16(to_bfloat16(kNan))));
}

TEST(Values, AreNotReadWhereBetaIsZero) {
  std::vector<float> memory = {kNan, 4.0F};
  store(memory.data(), Type::kFloat, {2.0F, 3.0F}, {.alpha = 2.0F, .beta = 0.0F});
  EXPECT_EQ(memory, (std::vector<float>{4.0F, 6.0F}));
  store(memory.data(), Type::kFloat, {1.0F, 1.0F}, {.alpha = 1.0F, .beta = 0.5F});
  EXPECT_EQ(memory, (std::vector<float>{3.0F, 4.0F}));
}

}  // namespace
}  // namespace standin::libraries
