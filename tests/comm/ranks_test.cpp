#include "comm/ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "convnet/error.hpp"

namespace convnet {
namespace {

using testing::HasSubstr;

// Binds this process to some cores while it lives.
class Bound {
 public:
  explicit Bound(const std::vector<int>& cores) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores) {
      CPU_SET(static_cast<std::size_t>(core), &set);
    }
    sched_getaffinity(0, sizeof(before_), &before_);
    EXPECT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
  }
  ~Bound() { sched_setaffinity(0, sizeof(before_), &before_); }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

 private:
  cpu_set_t before_{};
};

std::vector<int> usable_cores() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) {
      cores.push_back(core);
    }
  }
  return cores;
}

// Sets OMP_NUM_THREADS while it lives, or takes it away.
class OmpNumThreads {
 public:
  explicit OmpNumThreads(const std::optional<std::string>& value) {
    if (const char* const before = std::getenv("OMP_NUM_THREADS")) {
      before_ = before;
    }
    set(value);
  }
  ~OmpNumThreads() { set(before_); }
  OmpNumThreads(const OmpNumThreads&) = delete;
  OmpNumThreads& operator=(const OmpNumThreads&) = delete;

 private:
  static void set(const std::optional<std::string>& value) {
    if (value) {
      setenv("OMP_NUM_THREADS", value->c_str(), 1);
    } else {
      unsetenv("OMP_NUM_THREADS");
    }
  }

  std::optional<std::string> before_;
};

TEST(GatherRankFacts, TellsEveryRankAboutAll) {
  MpiCommunicator world;
  MpiCommunicator node = MpiCommunicator::of_node(world);
  const std::vector<RankFacts> all = gather_rank_facts(world, node);
  std::array<char, 256> host{};
  gethostname(host.data(), host.size());
  ASSERT_EQ(std::ssize(all), world.size());
  for (int rank = 0; rank < world.size(); ++rank) {
    const RankFacts& facts = all[static_cast<std::size_t>(rank)];
    EXPECT_EQ(facts.rank, rank);
    EXPECT_EQ(facts.local_rank, rank);
    EXPECT_EQ(facts.local_size, world.size());
    EXPECT_EQ(facts.host, host.data());
    EXPECT_EQ(facts.cores, std::ssize(usable_cores()));
    EXPECT_EQ(facts.ranks_sharing, world.size());
  }
}

TEST(GatherRankFacts, CountsOnlyRanksThatHaveCoresInCommon) {
  MpiCommunicator world;
  MpiCommunicator node = MpiCommunicator::of_node(world);
  const std::vector<int> cores = usable_cores();
  if (cores.size() < 2) {
    GTEST_SKIP() << "needs two cores to bind to";
  }
  // Even ranks on one core, odd ranks on another.
  const Bound bound({cores[static_cast<std::size_t>(world.rank() % 2)]});
  for (const RankFacts& facts : gather_rank_facts(world, node)) {
    EXPECT_EQ(facts.cores, 1);
    EXPECT_EQ(facts.ranks_sharing, facts.rank % 2 == 0 ? (world.size() + 1) / 2 : world.size() / 2);
  }
}

RankFacts cores_shared_by(int cores, int ranks) {
  RankFacts facts;
  facts.cores = cores;
  facts.ranks_sharing = ranks;
  return facts;
}

TEST(ThreadCount, SharesTheCoresAmongTheRanksThatHaveThem) {
  const OmpNumThreads unset(std::nullopt);
  EXPECT_EQ(thread_count(cores_shared_by(8, 1), 0), 8);
  EXPECT_EQ(thread_count(cores_shared_by(8, 3), 0), 2);
  EXPECT_EQ(thread_count(cores_shared_by(2, 4), 0), 1);
}

TEST(ThreadCount, FollowsOmpNumThreads) {
  const RankFacts facts = cores_shared_by(8, 1);
  const OmpNumThreads three("3");
  EXPECT_EQ(thread_count(facts, 0), 3);
  const OmpNumThreads nested("5,2");
  EXPECT_EQ(thread_count(facts, 0), 5);
}

TEST(ThreadCount, FollowsWhatIsRequestedFirstOfAll) {
  const OmpNumThreads garbage("three");
  EXPECT_EQ(thread_count(cores_shared_by(8, 1), 6), 6);
}

TEST(ThreadCount, RefusesAnOmpNumThreadsThatIsNoCount) {
  for (const std::string value : {"three", "0", "-2", "", ",2", "4x", "99999999999"}) {
    const OmpNumThreads garbage(value);
    try {
      thread_count(cores_shared_by(8, 1), 0);
      ADD_FAILURE() << "nothing was thrown for \"" << value << '"';
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      EXPECT_THAT(error.what(), HasSubstr("OMP_NUM_THREADS is \"" + value + "\""));
    }
  }
}

TEST(RequireAgreement, AcceptsTheSameValueOnAllRanks) {
  MpiCommunicator world;
  EXPECT_NO_THROW(require_agreement(world, "the options", "batch 100"));
  EXPECT_NO_THROW(require_agreement(world, "the options", ""));
}

TEST(RequireAgreement, NamesTheOneRankThatDiffersOnAllRanks) {
  MpiCommunicator world;
  if (world.size() == 1) {
    GTEST_SKIP() << "needs two ranks to differ";
  }
  const int odd_one = world.size() - 1;
  try {
    require_agreement(world, "the data file", world.rank() == odd_one ? "sum bbb" : "sum aaa");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_TRUE(error.is_on_every_rank());
    EXPECT_THAT(error.what(), HasSubstr("the data file"));
    EXPECT_THAT(error.what(), HasSubstr("rank 0 has sum aaa"));
    EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(odd_one) + " has sum bbb"));
  }
}

TEST(RequireAgreement, NamesAllRanksWhereOnlyRank0Differs) {
  MpiCommunicator world;
  if (world.size() < 4) {
    GTEST_SKIP() << "needs four ranks for a list";
  }
  try {
    require_agreement(world, "the options", world.rank() == 0 ? "" : "--seed 1");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("ranks 1, 2, 3"));
  }
}

}  // namespace
}  // namespace convnet
