#include "comm/watchdog.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace convnet {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// What this rank writes on stderr while `action` runs.
template <class Action>
std::string errors_of(const Action& action) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

TEST(WatchMail, CarriesPlacesToAnyRankAndBlocksNobody) {
  const MpiCommunicator world;
  MpiCommunicator own = MpiCommunicator::duplicate_of(world);
  WatchMail mail(own);
  EXPECT_FALSE(mail.receive());
  own.barrier();
  const Progress::Mark mark{.step = world.rank() + 10, .phase = "training", .call = "MPI_Bcast"};
  for (int rank = 0; rank < world.size(); ++rank) {
    mail.send(rank, Letter::kAnswer, place_of(mark, 7ms));
  }
  std::vector<bool> seen(static_cast<std::size_t>(world.size()));
  for (int open = world.size(); open > 0;) {
    if (const std::optional<Received> received = mail.receive()) {
      EXPECT_EQ(received->letter, Letter::kAnswer);
      EXPECT_EQ(received->place.step, received->sender + 10);
      EXPECT_EQ(received->place.age, 7ms);
      EXPECT_STREQ(received->place.call.data(), "MPI_Bcast");
      seen[static_cast<std::size_t>(received->sender)] = true;
      --open;
    }
  }
  EXPECT_EQ(seen, std::vector<bool>(seen.size(), true));
  own.barrier();
}

TEST(Watchdog, LeavesRanksAloneThatWaitWhileAnotherOneMoves) {
  MpiCommunicator world;
  const std::string errors = errors_of([&world] {
    const Watchdog watchdog(world, 1s);
    if (world.rank() == world.size() - 1) {
      for (int step = 1; step <= 12; ++step) {  // 2.4 s in all: the others wait for longer than the deadline
        world.progress().enter_step(step);
        std::this_thread::sleep_for(200ms);
      }
    }
    world.barrier();
  });
  EXPECT_EQ(errors, "");
}

TEST(Watchdog, ThatIsToldOfTheEndKeepsSilentWhileAllRanksAnswer) {
  MpiCommunicator world;
  const std::string errors = errors_of([&] {
    const Watchdog watchdog(world, 60s, [] { return true; });
    if (world.rank() == world.size() - 1) {
      std::this_thread::sleep_for(2s);
    }
    world.barrier();
  });
  EXPECT_EQ(errors, "");
}

TEST(Watchdog, ThatIsToldOfTheEndKeepsSilentWhileThereIsProgress) {
  MpiCommunicator world;
  const std::string errors = errors_of([&world] {
    const Watchdog watchdog(world, 60s, [] { return true; });
    for (int i = 0; i < 10; ++i) {
      std::this_thread::sleep_for(100ms);
      world.barrier();
    }
  });
  EXPECT_EQ(errors, "");
}

TEST(Watchdog, DoesNotWaitForOthersWhileAnExceptionUnwindsOneRank) {
  MpiCommunicator world;
  const bool is_last = world.rank() == world.size() - 1;
  auto watchdog = std::make_unique<Watchdog>(world, 60s);
  const auto unwind = [&watchdog] {
    try {
      const std::unique_ptr<Watchdog> lost = std::move(watchdog);
      throw std::runtime_error("one rank fails");
    } catch (const std::runtime_error&) {  // what counts has happened on the way here
    }
  };
  if (is_last) {
    unwind();
  }
  world.barrier();
  if (!is_last) {
    unwind();
  }
}

}  // namespace
}  // namespace convnet
