#include "comm/progress.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/watch_words.hpp"

namespace convnet {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using Answers = std::vector<std::optional<Place>>;

TEST(Progress, StartsBeforeTheFirstStepOutsideOfCalls) {
  const Progress progress;
  const Progress::Mark mark = progress.snapshot();
  EXPECT_EQ(mark.step, 0);
  EXPECT_STREQ(mark.phase, "starting");
  EXPECT_EQ(mark.call, nullptr);
}

TEST(Progress, RemembersStepPhaseAndTheInnermostCall) {
  Progress progress;
  progress.enter_phase("training");
  progress.enter_step(17);
  const Progress::Call outer(progress, "MPI_Allgatherv");
  {
    const Progress::Call inner(progress, "MPI_Allgather");
    EXPECT_STREQ(progress.snapshot().call, "MPI_Allgather");
  }
  EXPECT_STREQ(progress.snapshot().call, "MPI_Allgatherv");
  EXPECT_EQ(progress.snapshot().step, 17);
  EXPECT_STREQ(progress.snapshot().phase, "training");
}

TEST(Progress, ChangesWithEverythingThatIsSet) {
  Progress progress;
  std::uint64_t before = progress.snapshot().changes;
  const auto has_changed = [&] { return std::exchange(before, progress.snapshot().changes) != before; };
  EXPECT_FALSE(has_changed());
  progress.enter_step(1);
  EXPECT_TRUE(has_changed());
  progress.enter_step(1);  // the same again is progress, too
  EXPECT_TRUE(has_changed());
  progress.enter_phase("training");
  EXPECT_TRUE(has_changed());
  {
    const Progress::Call call(progress, "MPI_Bcast");
    EXPECT_TRUE(has_changed());
  }
  EXPECT_TRUE(has_changed());
}

Place place(std::int64_t step, const char* call, std::chrono::milliseconds age = 300s) {
  return place_of({.step = step, .phase = "training", .call = call}, age);
}

TEST(Describe, SaysForHowLongInWhichCallOfWhichStep) {
  EXPECT_EQ(describe(place(17, "MPI_Allreduce", 300'999ms)),
            "has waited 300 s in MPI_Allreduce of step 17, training");
  EXPECT_EQ(describe(place(17, nullptr, 999ms)), "has computed for 0 s in step 17, training");
  EXPECT_EQ(describe(place(0, "MPI_Bcast")), "has waited 300 s in MPI_Bcast before step 1, training");
  EXPECT_EQ(describe(place(0, nullptr)), "has computed for 300 s before step 1, training");
}

TEST(Describe, CutsNamesThatAreTooLong) {
  const std::string name(100, 'x');
  EXPECT_THAT(describe(place(1, name.c_str())), HasSubstr(" " + std::string(39, 'x') + " "));
}

TEST(Culprits, AreRanksThatDoNotAnswer) {
  const Answers answers{place(17, "MPI_Allreduce"), std::nullopt, place(17, "MPI_Allreduce"), std::nullopt};
  EXPECT_THAT(culprits(answers, {"a", "a", "b", "b"}),
              ElementsAre("no answer from rank 1 on a, rank 3 on b (killed, stopped or unreachable)"));
}

TEST(Culprits, AreRanksElsewhereThanWhereTheOthersWait) {
  const Answers computing{place(17, "MPI_Allreduce"), place(17, nullptr, 312s)};
  EXPECT_THAT(
      culprits(computing, {"a", "b"}),
      ElementsAre("elsewhere than the ranks that wait: rank 1 on b has computed for 312 s in step 17, "
                  "training"));
  const Answers late{place(16, "MPI_Allreduce", 200s), place(17, "MPI_Allreduce")};
  EXPECT_THAT(culprits(late, {"a", "b"}), ElementsAre(HasSubstr("wait: rank 0 on a has waited 200 s")));
  const Answers all_compute{place(17, nullptr), std::nullopt};
  EXPECT_THAT(culprits(all_compute, {"a", "b"}),
              ElementsAre(HasSubstr("no answer from rank 1 on b"), HasSubstr("nobody waits: rank 0 on a")));
}

TEST(Culprits, AreNotThereWhereAllWaitTogether) {
  const Answers answers{place(17, "MPI_Allreduce"), place(17, "MPI_Allreduce")};
  EXPECT_THAT(culprits(answers, {"a", "b"}),
              ElementsAre(HasSubstr("all ranks answer and wait in MPI_Allreduce of step 17, training")));
}

TEST(Culprits, AreCountedWhereTheyAreMany) {
  Answers answers(106);
  answers.front() = place(17, "MPI_Allreduce");
  const auto lines = culprits(answers, std::vector<std::string>(106, "a"));
  EXPECT_THAT(lines,
              ElementsAre(testing::EndsWith("rank 8 on a and 97 more (killed, stopped or unreachable)")));
}

}  // namespace
}  // namespace convnet
