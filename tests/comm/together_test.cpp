#include "comm/together.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "comm/mpi_communicator.hpp"
#include "convnet/error.hpp"

namespace convnet {
namespace {

TEST(Together, ReturnsWhereAllRanksSucceed) {
  MpiCommunicator world;
  int runs = 0;
  together(world, [&] { ++runs; });
  EXPECT_EQ(runs, 1);
}

TEST(Together, ThrowsTheErrorOfOneRankOnAllRanks) {
  MpiCommunicator world;
  const int last = world.size() - 1;
  try {
    together(world, [&] {
      if (world.rank() == last) {
        throw Error(ExitCode::kIo, "data.h5: cannot read");
      }
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_TRUE(error.is_on_every_rank());
    EXPECT_EQ(std::string(error.what()),
              (last == 0 ? "" : "rank " + std::to_string(last) + ": ") + std::string("data.h5: cannot read"));
  }
}

TEST(Together, ThrowsTheErrorOfTheLowestRankWhereSeveralFail) {
  MpiCommunicator world;
  try {
    together(world,
             [&] { throw Error(ExitCode::kData, "rank " + std::to_string(world.rank()) + "'s data"); });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 0's data");
  }
}

TEST(Together, TakesAnyExceptionForAnError) {
  MpiCommunicator world;
  try {
    together(world, [] { throw std::length_error("vector::reserve"); });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInternal);
    EXPECT_STREQ(error.what(), "vector::reserve");
  }
}

}  // namespace
}  // namespace convnet
