#include "comm/shared_flags.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace convnet {
namespace {

TEST(SharedFlags, OfAllRanksAreHeardByAllRanksInTheNextStep) {
  const MpiCommunicator world;
  SharedFlags flags(world);
  const auto bit_of = [](int rank) { return std::uint32_t{1} << rank; };
  const int delay = world.size() == 1 ? 0 : 1;  // one rank alone hears itself at once
  for (int step = 0; step < 50; ++step) {
    const int speaker = step % world.size();
    if (world.rank() == (step + 1) % world.size() && step % 10 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // ranks drift apart
    }
    const std::uint32_t heard = flags.exchange(world.rank() == speaker ? bit_of(speaker) : 0);
    const int said = step - delay;
    EXPECT_EQ(heard, said < 0 ? 0 : bit_of(said % world.size())) << "step " << step;
  }
}

TEST(SharedFlags, OfSeveralRanksComeTogether) {
  const MpiCommunicator world;
  SharedFlags flags(world);
  flags.exchange(std::uint32_t{1} << world.rank());
  const std::uint32_t heard = flags.exchange(0);
  EXPECT_EQ(heard, world.size() == 1 ? 0 : (std::uint32_t{1} << world.size()) - 1);
}

}  // namespace
}  // namespace convnet
