#include "convnet/checkpoint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "convnet/error.hpp"
#include "data/expect_error.hpp"

namespace convnet {
namespace {

constexpr std::size_t kHeaderSize = 512;

// A checkpoint of a small network, all of whose numbers differ.
Checkpoint small_checkpoint(std::size_t moments) {
  Checkpoint checkpoint;
  checkpoint.network.input = {2, 6, 4};
  checkpoint.network.classes = 3;
  checkpoint.network.blocks = {{.out_channels = 5, .kernel = 3, .padding = 1}};
  checkpoint.state = initial_state(checkpoint.network, 7);
  float value = 0.5F;
  for (float& buffer : checkpoint.state.buffers) {
    buffer = value += 0.25F;
  }
  checkpoint.state.moments.assign(moments, std::vector<float>(checkpoint.state.parameters.size()));
  for (std::vector<float>& moment : checkpoint.state.moments) {
    std::iota(moment.begin(), moment.end(), value += 1000.0F);
  }
  checkpoint.state.steps = 33;
  checkpoint.rank_buffers.resize(3 * checkpoint.state.buffers.size());
  std::iota(checkpoint.rank_buffers.begin(), checkpoint.rank_buffers.end(), -7.0F);
  checkpoint.position = {.epoch = 4, .step = 5, .samples = 678, .global_step = 35};
  checkpoint.world_size = 3;
  checkpoint.options = R"({"lr":0.1})";
  checkpoint.data = "some data";
  checkpoint.versions = R"({"convnet":"9"})";
  return checkpoint;
}

const std::vector<std::byte>& small_file() {
  static const std::vector<std::byte> bytes = checkpoint_bytes(small_checkpoint(2));
  return bytes;
}

void expect_refused(std::span<const std::byte> bytes, const std::vector<std::string>& parts) {
  std::vector<std::string> all{"some/file.h5: found "};
  all.insert(all.end(), parts.begin(), parts.end());
  expect_error([&] { parse_checkpoint(bytes, "some/file.h5"); }, ExitCode::kData, all);
}

void expect_flip_refused(std::size_t bit) {
  SCOPED_TRACE(bit);
  std::vector<std::byte> bytes = small_file();
  bytes[bit / 8] ^= std::byte{1} << bit % 8;
  expect_refused(bytes, {});
}

TEST(CheckpointFile, GivesBackAllThatWasPutIn) {
  for (const std::size_t moments : {0, 1, 2}) {
    const Checkpoint before = small_checkpoint(moments);
    const Checkpoint after = parse_checkpoint(checkpoint_bytes(before), "file");
    EXPECT_EQ(after.state, before.state);
    EXPECT_EQ(after.rank_buffers, before.rank_buffers);
    EXPECT_EQ(after.position, before.position);
    EXPECT_EQ(after.world_size, before.world_size);
    EXPECT_EQ(after.options, before.options);
    EXPECT_EQ(after.data, before.data);
    EXPECT_EQ(after.versions, before.versions);
    EXPECT_EQ(StateLayout(after.network).parameter_count(), StateLayout(before.network).parameter_count());
  }
}

TEST(CheckpointFile, IsTheSameToTheLastByteEachTime) {
  EXPECT_EQ(checkpoint_bytes(small_checkpoint(2)), small_file());
}

TEST(CheckpointFile, NoBitOfItsHeaderMayChange) {
  for (std::size_t bit = 0; bit < 8 * kHeaderSize; ++bit) {
    expect_flip_refused(bit);
  }
}

TEST(CheckpointFile, NoBitBehindTheHeaderMayChange) {
  const std::size_t bits = 8 * small_file().size();
  std::mt19937 random(5);
  std::uniform_int_distribution<std::size_t> any(8 * kHeaderSize, bits - 1);
  constexpr int kFlips = 500;
  for (int i = 0; i < kFlips; ++i) {
    expect_flip_refused(any(random));
  }
  expect_flip_refused(bits - 1);
}

TEST(CheckpointFile, MayNotBeCutOffAnywhereOrGrow) {
  const std::span<const std::byte> whole = small_file();
  expect_refused({}, {"an empty file"});
  for (std::size_t length = 1; length < whole.size(); length += length < 2 * kHeaderSize ? 1 : 97) {
    SCOPED_TRACE(length);
    expect_refused(whole.first(length), {});
  }
  expect_refused(whole.first(whole.size() - 1), {"cut off"});
  std::vector<std::byte> longer = small_file();
  longer.push_back(std::byte{0});
  expect_refused(longer, {"a damaged checkpoint"});
}

TEST(CheckpointFile, OfALaterVersionIsCalledThat) {
  std::vector<std::byte> later = small_file();
  const auto version = std::ranges::find(later, std::byte{'1'});
  *version = std::byte{'2'};
  expect_refused(later, {"format version 2", "a newer convnet"});
}

}  // namespace
}  // namespace convnet
