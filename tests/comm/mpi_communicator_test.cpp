#include "comm/mpi_communicator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "comm/launch.hpp"
#include "convnet/error.hpp"
#include "convnet/random.hpp"

namespace convnet {
namespace {

// Element i of rank r, an integer small enough that float holds all sums exactly, in whatever order they are
// added.
template <typename Value>
std::vector<Value> values_of(int rank, std::size_t count) {
  std::vector<Value> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<Value>((static_cast<int>(i % 1000) - 500) * (rank + 1));
  }
  return values;
}

template <typename Value>
void expect_exact_sums(MpiCommunicator& world) {
  const int rank_sum = world.size() * (world.size() + 1) / 2;  // of rank + 1
  for (const std::size_t count : {0U, 1U, 7U, 1000U, 300'000U}) {
    std::vector<Value> values = values_of<Value>(world.rank(), count);
    world.all_reduce_sum(std::span(values));
    EXPECT_EQ(values, values_of<Value>(rank_sum - 1, count)) << count << " values";
  }
}

TEST(MpiCommunicator, IsAsLargeAsWhatTheLauncherStarted) {
  const MpiCommunicator world;
  const LaunchFacts facts = launch_facts(process_environment());
  EXPECT_EQ(world.size(), facts.expected_ranks);
  EXPECT_NO_THROW(check_launch(facts, world.size()));
}

TEST(MpiCommunicator, SumsFloatsExactly) {
  MpiCommunicator world;
  expect_exact_sums<float>(world);
}

TEST(MpiCommunicator, SumsDoublesExactly) {
  MpiCommunicator world;
  expect_exact_sums<double>(world);
}

TEST(MpiCommunicator, GivesAllRanksTheSameBitsWhereSumsAreRounded) {
  MpiCommunicator world;
  TorchGenerator generator(static_cast<std::uint64_t>(world.rank()));
  for (const std::size_t count : {5U, 29'036U, 500'000U}) {
    std::vector<float> values(count);
    for (float& value : values) {
      value = generator.uniform(-1.0F, 1.0F);
    }
    world.all_reduce_sum(std::span(values));
    std::vector<float> of_rank_0 = values;
    world.broadcast(std::as_writable_bytes(std::span(of_rank_0)), 0);
    EXPECT_EQ(values, of_rank_0) << count << " values";
  }
}

TEST(MpiCommunicator, BroadcastsFromAnyRank) {
  MpiCommunicator world;
  for (int root = 0; root < world.size(); ++root) {
    std::vector<int> values(100, world.rank());
    world.broadcast(std::as_writable_bytes(std::span(values)), root);
    EXPECT_EQ(values, std::vector<int>(100, root));
  }
}

TEST(MpiCommunicator, GathersTextsOfDifferentLengths) {
  MpiCommunicator world;
  const auto text_of = [](int rank) {
    return std::string(static_cast<std::size_t>(rank * 1000), 'x') + std::string("\n\0y", 3);
  };
  const std::vector<std::string> texts = world.all_gather(text_of(world.rank()));
  ASSERT_EQ(std::ssize(texts), world.size());
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text_of(rank));
  }
}

TEST(MpiCommunicator, GathersEmptyTexts) {
  MpiCommunicator world;
  const bool is_last = world.rank() == world.size() - 1;
  std::vector<std::string> expected(static_cast<std::size_t>(world.size()));
  expected.back() = "last";
  EXPECT_EQ(world.all_gather(is_last ? "last" : ""), expected);
  EXPECT_EQ(world.all_gather(""), std::vector<std::string>(static_cast<std::size_t>(world.size())));
}

TEST(MpiCommunicator, PutsAllRanksOfOneMachineOnOneNode) {
  MpiCommunicator world;
  MpiCommunicator node = MpiCommunicator::of_node(world);
  EXPECT_EQ(node.size(), world.size());
  EXPECT_EQ(node.rank(), world.rank());
  std::vector<double> values(3, 1.0);
  node.all_reduce_sum(std::span(values));
  EXPECT_EQ(values, std::vector<double>(3, node.size()));
}

TEST(MpiCommunicator, CanBeMoved) {
  MpiCommunicator source;
  MpiCommunicator target(std::move(source));
  MpiCommunicator assigned;
  assigned = std::move(target);
  std::vector<float> values{1.0F};
  assigned.all_reduce_sum(std::span(values));
  EXPECT_EQ(values.front(), static_cast<float>(assigned.size()));
}

TEST(MpiCommunicator, RefusesMoreElementsThanMpiCanCount) {
  MpiCommunicator world;
  float value = 0.0F;
  const std::span<float> too_many(&value, std::size_t{1} << 31);  // refused before anything is touched
  try {
    world.all_reduce_sum(too_many);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("MPI_Allreduce was given 2147483648 elements"));
  }
  EXPECT_THROW(world.broadcast(std::as_writable_bytes(too_many), 0), Error);
}

TEST(MpiCommunicator, ThrowsWhatMpiSaysOfAFailedCall) {
  MpiCommunicator world;
  std::vector<std::byte> bytes(4);
  try {
    world.broadcast(bytes, world.size());  // there is no such rank
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInternal);
    EXPECT_THAT(error.what(), testing::StartsWith("MPI_Bcast failed: "));
    EXPECT_THAT(error.what(), testing::HasSubstr("MPI_ERR_ROOT"));
    EXPECT_THAT(error.location(), testing::StartsWith("src/comm/mpi_communicator.cpp:"));
  }
}

}  // namespace
}  // namespace convnet
