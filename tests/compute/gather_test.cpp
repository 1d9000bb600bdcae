#include <gtest/gtest.h>

#include <numeric>

#include "compute/backend_test.hpp"

namespace convnet {
namespace {

class Gather : public BackendTest {};

TEST_P(Gather, DividesEachByteBy255AsToTensorDoes) {
  std::vector<std::uint8_t> image(256);
  std::iota(image.begin(), image.end(), std::uint8_t{0});
  const std::vector<std::int32_t> rows{0};
  const Floats x = GetParam().make_operations()->gather_images(image, {1, 16, 16}, rows);
  for (std::size_t i = 0; i < image.size(); ++i) {
    EXPECT_EQ(x[i], static_cast<float>(i) / 255.0F);
  }
}

TEST_P(Gather, TakesRowsInAnyOrderAndMoreThanOnce) {
  constexpr std::size_t kSize = 3 * 2 * 5;
  std::vector<std::uint8_t> images(7 * kSize);
  std::iota(images.begin(), images.end(), std::uint8_t{0});
  const std::vector<std::int32_t> rows{6, 0, 3, 3};
  Floats expected;
  for (const std::int32_t row : rows) {
    for (std::size_t i = 0; i < kSize; ++i) {
      expected.push_back(static_cast<float>(static_cast<std::size_t>(row) * kSize + i) / 255.0F);
    }
  }
  EXPECT_EQ(GetParam().make_operations()->gather_images(images, {3, 2, 5}, rows), expected);
}

INSTANTIATE_TEST_SUITE_P(Backends, Gather, testing::ValuesIn(all_backends()), backend_name);

}  // namespace
}  // namespace convnet
