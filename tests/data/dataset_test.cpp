#include "convnet/dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "convnet/error.hpp"
#include "data/data_file_writer.hpp"
#include "temporary_folder.hpp"

namespace convnet {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

DataFileInfo small_info() {
  DataFileInfo info;
  info.shape = {2, 3, 5};
  info.classes = 4;
  info.train_count = 6;
  info.test_count = 5;
  return info;
}

constexpr std::size_t kPixels = 2 * 3 * 5;

TEST(Dataset, NeedsAByteAPixelAndFourALabel) {
  EXPECT_EQ(bytes_for(small_info(), {1, 4}, {0, 5}), 9 * (kPixels + 4));
  EXPECT_EQ(bytes_for(small_info(), {0, 0}, {0, 0}), 0U);
}

TEST(Dataset, NeedsMoreThanFourGigabytesWhereTheDataAreSoLarge) {
  DataFileInfo info;
  info.shape = {3, 1000, 1000};
  EXPECT_EQ(bytes_for(info, {0, 10'000}, {0, 0}), 30'000'040'000U);
}

TEST(Dataset, GivesEachPartMemoryOfItsOwn) {
  std::vector<std::byte> memory(bytes_for(small_info(), {1, 4}, {0, 5}));
  const Dataset dataset = view_dataset(small_info(), {1, 4}, {0, 5}, memory);
  ASSERT_EQ(dataset.train.images.size(), 4 * kPixels);
  ASSERT_EQ(dataset.test.images.size(), 5 * kPixels);
  ASSERT_EQ(dataset.train.labels.size(), 4U);
  ASSERT_EQ(dataset.test.labels.size(), 5U);
  // Together the parts are the whole: none overlaps another, and none reaches beyond the end.
  std::vector<int> uses(memory.size());
  for (const std::span<const std::byte> part :
       {std::as_bytes(dataset.train.images), std::as_bytes(dataset.test.images),
        std::as_bytes(dataset.train.labels), std::as_bytes(dataset.test.labels)}) {
    for (const std::byte& byte : part) {
      ++uses.at(static_cast<std::size_t>(&byte - memory.data()));
    }
  }
  EXPECT_EQ(uses, std::vector<int>(memory.size(), 1));
}

TEST(Dataset, RefusesMemoryThatIsTooSmall) {
  std::vector<std::byte> memory(bytes_for(small_info(), {0, 6}, {0, 5}) - 1);
  EXPECT_THROW(view_dataset(small_info(), {0, 6}, {0, 5}, memory), Error);
}

TEST(Dataset, LoadsTheRangesOfAFile) {
  std::vector<std::uint8_t> pixels(11 * kPixels);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(i * 7 % 251);
  }
  const std::span<const std::uint8_t> images(pixels);
  const std::vector<std::int32_t> train_labels{0, 1, 2, 3, 2, 1};
  const std::vector<std::int32_t> test_labels{3, 0, 0, 2, 1};
  const TemporaryFolder folder;
  write_data_file(folder / "small.h5", {small_info(),
                                        {{0, 6}, images.first(6 * kPixels), train_labels},
                                        {{0, 5}, images.last(5 * kPixels), test_labels},
                                        nullptr});

  const DataFile file(folder / "small.h5");
  const RowRange train{2, 3};
  const RowRange test{1, 4};
  std::vector<std::byte> memory(bytes_for(file.info(), train, test));
  load_into(file, train, test, memory);
  const Dataset dataset = view_dataset(file.info(), train, test, memory);
  EXPECT_EQ(dataset.train.range, train);
  EXPECT_EQ(dataset.test.range, test);
  EXPECT_THAT(dataset.train.labels, ElementsAre(2, 3, 2));
  EXPECT_THAT(dataset.test.labels, ElementsAre(0, 0, 2, 1));
  EXPECT_THAT(dataset.train.images, ElementsAreArray(images.subspan(2 * kPixels, 3 * kPixels)));
  EXPECT_THAT(dataset.test.images, ElementsAreArray(images.last(4 * kPixels)));
}

}  // namespace
}  // namespace convnet
