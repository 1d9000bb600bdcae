#include "comm/shared_dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "comm/shared_window.hpp"
#include "convnet/error.hpp"
#include "data/data_file_writer.hpp"
#include "temporary_folder.hpp"

namespace convnet {
namespace {

using testing::HasSubstr;

constexpr int kTrainCount = 7;
constexpr int kTestCount = 4;

// Images of 2 x 3 pixels that count on from image to image; labels that repeat 0, 1, 2.
struct CountingImages {
  std::vector<std::uint8_t> pixels = std::vector<std::uint8_t>(6 * (kTrainCount + kTestCount));
  std::vector<std::int32_t> labels = std::vector<std::int32_t>(kTrainCount + kTestCount);

  CountingImages() {
    std::iota(pixels.begin(), pixels.end(), std::uint8_t{0});
    for (std::size_t i = 0; i < labels.size(); ++i) {
      labels[i] = static_cast<std::int32_t>(i % 3);
    }
  }

  Dataset dataset() const {
    Dataset all;
    all.info.shape = {1, 2, 3};
    all.info.classes = 3;
    all.info.train_count = kTrainCount;
    all.info.test_count = kTestCount;
    const std::span<const std::uint8_t> images(pixels);
    const std::span<const std::int32_t> all_labels(labels);
    all.train = {{0, kTrainCount}, images.first(6 * kTrainCount), all_labels.first(kTrainCount)};
    all.test = {{0, kTestCount}, images.last(6 * kTestCount), all_labels.last(kTestCount)};
    return all;
  }
};

// A data file that rank 0 has written and all ranks can read.
class SharedDataset : public testing::Test {
 protected:
  SharedDataset() {
    std::string name;
    if (world_.rank() == 0) {
      folder_.emplace();
      name = *folder_ / "counting.h5";
      write_data_file(name, CountingImages().dataset());
    }
    path_ = world_.all_gather(name).front();
  }
  ~SharedDataset() override { world_.barrier(); }

  MpiCommunicator world_;
  MpiCommunicator node_ = MpiCommunicator::of_node(world_);
  std::optional<TemporaryFolder> folder_;
  std::filesystem::path path_;
};

TEST_F(SharedDataset, HoldsTheFileOnEveryRank) {
  const Dataset shared = load_shared_dataset(path_, {0, kTrainCount}, {0, kTestCount}, world_, node_);
  const CountingImages expected;
  const Dataset all = expected.dataset();
  EXPECT_EQ(shared.info.shape, all.info.shape);
  EXPECT_THAT(shared.train.images, testing::ElementsAreArray(all.train.images));
  EXPECT_THAT(shared.train.labels, testing::ElementsAreArray(all.train.labels));
  EXPECT_THAT(shared.test.images, testing::ElementsAreArray(all.test.images));
  EXPECT_THAT(shared.test.labels, testing::ElementsAreArray(all.test.labels));
}

TEST_F(SharedDataset, HoldsARangeOfTheFile) {
  const Dataset shared = load_shared_dataset(path_, {2, 3}, {1, 2}, world_, node_);
  EXPECT_EQ(shared.train.range, (RowRange{2, 3}));
  EXPECT_EQ(shared.train.images.size(), 3U * 6U);
  EXPECT_EQ(shared.train.images.front(), 2 * 6);
  EXPECT_THAT(shared.train.labels, testing::ElementsAre(2, 0, 1));
  EXPECT_EQ(shared.test.images.front(), (kTrainCount + 1) * 6);
}

TEST_F(SharedDataset, OutlivesTheFile) {
  const Dataset shared = load_shared_dataset(path_, {0, kTrainCount}, {0, kTestCount}, world_, node_);
  world_.barrier();
  std::filesystem::remove(path_);
  world_.barrier();
  EXPECT_EQ(shared.train.images.back(), kTrainCount * 6 - 1);
}

TEST_F(SharedDataset, FailsOnAllRanksIfTheFileIsMissing) {
  try {
    load_shared_dataset("/nowhere/data.h5", {0, 1}, {0, 1}, world_, node_);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_TRUE(error.is_on_every_rank());
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/data.h5"));
  }
}

TEST_F(SharedDataset, FailsOnAllRanksIfTheReaderMeetsDamage) {
  if (world_.rank() == 0) {
    // The first training image, wherever it lies, is 0 1 2 3 4 5 6 ...; its checksum no longer fits.
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    const auto place = bytes.find(std::string("\0\1\2\3\4\5\6\7\10\11\12\13", 12));
    ASSERT_NE(place, std::string::npos);
    file.clear();
    file.seekp(static_cast<std::streamoff>(place));
    file.put('\7');
  }
  world_.barrier();
  try {
    load_shared_dataset(path_, {0, kTrainCount}, {0, kTestCount}, world_, node_);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_TRUE(error.is_on_every_rank());
    EXPECT_THAT(error.what(), HasSubstr(path_.string()));
  }
}

TEST_F(SharedDataset, CanBeReadByEachRankForItself) {
  const Dataset own = load_private_dataset(path_, {world_.rank(), 2}, {0, kTestCount});
  EXPECT_EQ(own.train.images.front(), world_.rank() * 6);
  EXPECT_EQ(own.test.images.back(), (kTrainCount + kTestCount) * 6 - 1);
}

TEST_F(SharedDataset, LiesInOneMemoryForAllRanks) {
  // Every rank writes its own place, and all see all places.
  const SharedWindow window(node_, static_cast<std::size_t>(node_.size()));
  ASSERT_EQ(std::ssize(window.memory()), node_.size());
  window.memory()[static_cast<std::size_t>(node_.rank())] =
      std::byte{0x40} | static_cast<std::byte>(node_.rank());
  window.synchronise();
  for (int rank = 0; rank < node_.size(); ++rank) {
    EXPECT_EQ(window.memory()[static_cast<std::size_t>(rank)],
              std::byte{0x40} | static_cast<std::byte>(rank));
  }
}

TEST_F(SharedDataset, DoesNotWaitForOthersWhileAnExceptionUnwindsOneRank) {
  // Were the destructors collective, the last rank would wait in them, and the others in the barrier, for
  // ever.
  auto window = std::make_unique<SharedWindow>(node_, 16);
  MpiCommunicator communicator;
  const auto unwind = [&] {
    try {
      const std::unique_ptr<SharedWindow> lost = std::move(window);
      const MpiCommunicator lost_too = std::move(communicator);
      throw Error(ExitCode::kData, "one rank fails");
    } catch (const Error&) {  // what counts has happened on the way here
    }
  };
  const bool is_last = world_.rank() == world_.size() - 1;
  if (is_last) {
    unwind();
  }
  world_.barrier();
  if (!is_last) {
    unwind();
  }
}

}  // namespace
}  // namespace convnet
