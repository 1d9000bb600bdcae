#include "data/source_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "data/expect_error.hpp"
#include "data/idx_files.hpp"
#include "temporary_folder.hpp"

namespace convnet {
namespace {

using testing::ElementsAre;

const std::vector<std::string> kNames{"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                      "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

class SourceFilesTest : public testing::Test {
 protected:
  SourceFilesTest() { write_small_source_files(folder_.path()); }

  Dataset read(const SourceOptions& options = {}) const {
    return read_source_files(find_source_files(folder_.path()), options, [](const auto&, double) {});
  }

  TemporaryFolder folder_;
};

TEST_F(SourceFilesTest, ReadsFourFilesThatFitTogether) {
  const Dataset dataset = read();
  EXPECT_EQ(dataset.info.shape, (ImageShape{1, 4, 3}));
  EXPECT_EQ(dataset.info.train_count, 5);
  EXPECT_EQ(dataset.info.test_count, 3);
  EXPECT_EQ(dataset.info.classes, 5);
  EXPECT_EQ(dataset.info.name, "unknown");
  EXPECT_FALSE(dataset.info.transposed);
  EXPECT_THAT(dataset.train.labels, ElementsAre(3, 0, 4, 1, 2));
  EXPECT_THAT(dataset.test.labels, ElementsAre(2, 2, 0));
  EXPECT_TRUE(std::ranges::equal(dataset.train.images, pixel_ramp(60)));
  EXPECT_TRUE(std::ranges::equal(dataset.test.images, pixel_ramp(36)));
  EXPECT_EQ(dataset.info.sources[2].name, "t10k-images-idx3-ubyte");
}

TEST_F(SourceFilesTest, SwapsRowsAndColumnsOfEachPlane) {
  write_bytes(folder_ / kNames[0], idx_bytes({5, 2, 2, 3}, pixel_ramp(60)));
  write_bytes(folder_ / kNames[2], idx_bytes({3, 2, 2, 3}, pixel_ramp(36)));
  const Dataset dataset = read({.transpose = true, .classes = {}});
  EXPECT_EQ(dataset.info.shape, (ImageShape{2, 3, 2}));
  EXPECT_TRUE(dataset.info.transposed);
  // The first image's planes, 0 7 14 / 21 28 35 and 42 49 56 / 63 70 77, stand the other way.
  EXPECT_THAT(dataset.train.images.first(12), ElementsAre(0, 21, 7, 28, 14, 35, 42, 63, 49, 70, 56, 77));
}

TEST_F(SourceFilesTest, CountsClassesFromZeroToTheLargestLabelOfBothSplits) {
  write_bytes(folder_ / kNames[1], idx_bytes({5}, {1, 2, 1, 2, 2}));
  write_bytes(folder_ / kNames[3], idx_bytes({3}, {1, 61, 1}));
  EXPECT_EQ(read().info.classes, 62);
  EXPECT_EQ(read({.transpose = false, .classes = 70}).info.classes, 70);
}

TEST_F(SourceFilesTest, RefusesLabelsBeyondTheClasses) {
  expect_error([&] { read({.transpose = false, .classes = 4}); }, ExitCode::kData,
               {folder_ / kNames[1], "found label 4 at index 2, expected labels below 4"});
}

TEST_F(SourceFilesTest, RefusesOtherCountsOfLabelsThanOfImages) {
  write_bytes(folder_ / kNames[3], idx_bytes({2}, {1, 1}));
  expect_error([&] { read(); }, ExitCode::kData,
               {folder_ / kNames[3], "found 2 labels, expected 3, one for each image", folder_ / kNames[2]});
}

TEST_F(SourceFilesTest, RefusesTestImagesOfAnotherShapeThanTrainingImages) {
  write_bytes(folder_ / kNames[2], idx_bytes({3, 3, 4}, pixel_ramp(36)));
  expect_error([&] { read(); }, ExitCode::kData,
               {folder_ / kNames[2], "found images of 1 x 3 x 4, expected 1 x 4 x 3"});
}

class SourceNamesTest : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(SourceNamesTest, AreFound) {
  const TemporaryFolder folder;
  SourcePaths expected;
  for (std::size_t i = 0; i < 4; ++i) {
    expected[i] = folder / GetParam()[i];
    write_bytes(expected[i], {});
  }
  write_bytes(folder / "README.md", {});
  write_bytes(folder / "train-images-idx3-ubyte.md5", {});
  EXPECT_EQ(find_source_files(folder.path()), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Spellings, SourceNamesTest,
    testing::Values(kNames,
                    std::vector<std::string>{"train-images.idx3-ubyte", "train-labels.idx1-ubyte.gz",
                                             "t10k-images-idx3-ubyte.gz", "test-labels-idx1-ubyte"},
                    std::vector<std::string>{"emnist-letters-train-images-idx3-ubyte.gz",
                                             "emnist-letters-train-labels-idx1-ubyte.gz",
                                             "emnist-letters-test-images-idx3-ubyte.gz",
                                             "emnist-letters-test-labels-idx1-ubyte.gz"}));

TEST_F(SourceFilesTest, SaysWhichFileIsMissing) {
  std::filesystem::remove(folder_ / kNames[2]);
  expect_error(
      [&] { find_source_files(folder_.path()); }, ExitCode::kIo,
      {folder_.path(), "found no file of test images, expected one named like t10k-images-idx3-ubyte"});
}

TEST_F(SourceFilesTest, DoesNotGuessAmongSeveralFiles) {
  write_bytes(folder_ / "train-images-idx3-ubyte.gz", {});
  expect_error([&] { find_source_files(folder_.path()); }, ExitCode::kUsage,
               {"several files of training images (train-images-idx3-ubyte, train-images-idx3-ubyte.gz)"});
}

TEST_F(SourceFilesTest, SaysWhyAFolderCannotBeListed) {
  expect_error([&] { find_source_files(folder_ / "none"); }, ExitCode::kIo,
               {folder_ / "none", "No such file"});
  expect_error([&] { find_source_files(folder_ / kNames[0]); }, ExitCode::kIo,
               {kNames[0], "Not a directory"});
}

TEST(KnownName, NeedsAllFourFilesInTheirPlaces) {
  // From SHA256SUMS.raw beside the files in data/.
  std::vector<SourceFile> sources;
  for (const std::string& name : kNames) {
    std::ifstream sums(CONVNET_SOURCE_DIR "/data/SHA256SUMS.raw");
    for (std::string sum, file; sums >> sum >> file;) {
      if (file == name) {
        sources.push_back({file, sum});
      }
    }
  }
  ASSERT_EQ(sources.size(), 4U);
  EXPECT_EQ(known_name(sources), "MNIST");
  std::swap(sources[0], sources[2]);
  EXPECT_EQ(known_name(sources), "unknown");
  EXPECT_EQ(known_name({}), "unknown");
}

}  // namespace
}  // namespace convnet
