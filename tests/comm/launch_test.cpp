#include "comm/launch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "convnet/error.hpp"

namespace convnet {
namespace {

using Variables = std::map<std::string, std::string>;

LaunchFacts facts_of(const Variables& variables) {
  return launch_facts([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

Variables operator+(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

// What Slurm sets in every process of a job, and in each task of a step of 4 tasks.
const Variables kSlurmJob{{"SLURM_JOB_ID", "71"}, {"SLURM_NTASKS", "4"}, {"SLURM_NPROCS", "4"}};
const Variables kSlurmStep{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "2"}};

TEST(LaunchFacts, FindNoLauncherInAPlainShell) {
  EXPECT_EQ(facts_of({}).launcher, "none");
  EXPECT_EQ(facts_of({}).expected_ranks, 1);
}

TEST(LaunchFacts, CountTheRanksOfOpenMpi) {
  const LaunchFacts facts = facts_of({{"OMPI_COMM_WORLD_SIZE", "6"}, {"PMIX_RANK", "3"}});
  EXPECT_EQ(facts.launcher, "mpirun (Open MPI)");
  EXPECT_EQ(facts.expected_ranks, 6);
}

TEST(OpenMpiSettings, SkipTheSearchForNetworksOnlyWhereAllTasksAreOnOneNode) {
  using Settings = std::vector<std::pair<std::string, std::string>>;
  const Variables two_nodes{{"OMPI_COMM_WORLD_SIZE", "6"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}};
  const Variables one_node{{"OMPI_COMM_WORLD_SIZE", "6"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "6"}};
  EXPECT_EQ(open_mpi_settings(facts_of(two_nodes)), Settings());
  EXPECT_EQ(open_mpi_settings(facts_of({{"OMPI_COMM_WORLD_SIZE", "6"}})), Settings());
  EXPECT_EQ(open_mpi_settings(facts_of(kSlurmJob + kSlurmStep)), Settings());
  EXPECT_EQ(open_mpi_settings(facts_of(one_node)), Settings({{"OMPI_MCA_pml", "ob1"}}));
}

TEST(OpenMpiSettings, StartNoDaemonBesideAProcessAlone) {
  EXPECT_THAT(open_mpi_settings(facts_of({})),
              testing::Contains(testing::Pair("OMPI_MCA_ess_singleton_isolated", "1")));
}

TEST(LaunchFacts, CountTheTasksOfASlurmStep) {
  const LaunchFacts facts = facts_of(kSlurmJob + kSlurmStep);
  EXPECT_EQ(facts.launcher, "srun (Slurm)");
  EXPECT_EQ(facts.expected_ranks, 4);
  EXPECT_THAT(facts.remedy, testing::HasSubstr("srun --mpi=pmix"));
}

TEST(LaunchFacts, CountTheRanksOfMpirunInsideASlurmJob) {
  // mpirun starts one helper a node as a Slurm step, and the ranks inherit that step's variables.
  const LaunchFacts facts = facts_of(kSlurmJob + kSlurmStep + Variables{{"OMPI_COMM_WORLD_SIZE", "32"}});
  EXPECT_EQ(facts.launcher, "mpirun (Open MPI)");
  EXPECT_EQ(facts.expected_ranks, 32);
}

TEST(LaunchFacts, IgnoreAnAllocationWithoutAStep) {
  EXPECT_EQ(facts_of(kSlurmJob).launcher, "none");
  EXPECT_EQ(facts_of(kSlurmJob + Variables{{"SLURM_PROCID", "0"}}).expected_ranks, 1);
}

TEST(LaunchFacts, IgnoreAStepWithoutATask) {
  EXPECT_EQ(facts_of({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}).launcher, "none");
}

TEST(LaunchFacts, IgnoreTheStepsOfBatchScriptsAndInteractiveShells) {
  for (const char* const reserved : {"4294967291", "4294967290"}) {
    const Variables step{{"SLURM_STEP_ID", reserved}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}};
    EXPECT_EQ(facts_of(kSlurmJob + step).launcher, "none") << "step " << reserved;
  }
}

TEST(LaunchFacts, CountTheRanksOfPmi) {
  const LaunchFacts facts = facts_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}});
  EXPECT_EQ(facts.launcher, "mpiexec (PMI)");
  EXPECT_EQ(facts.expected_ranks, 3);
}

TEST(LaunchFacts, InferTheTasksOfPmixFromTheRank) {
  const LaunchFacts facts = facts_of({{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "prterun-17@1"}});
  EXPECT_EQ(facts.launcher, "a PMIx launcher");
  EXPECT_EQ(facts.expected_ranks, 3);
}

TEST(LaunchFacts, IgnoreCountsThatAreNotNumbers) {
  EXPECT_EQ(facts_of({{"OMPI_COMM_WORLD_SIZE", "many"}}).launcher, "none");
  EXPECT_EQ(facts_of({{"OMPI_COMM_WORLD_SIZE", ""}}).launcher, "none");
}

TEST(CheckPmi, RefusesATaskOfSlurmThatMpiCannotConnect) {
  try {
    check_pmi(facts_of(kSlurmJob + kSlurmStep));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUnavailable);
    EXPECT_THAT(error.what(), testing::HasSubstr("without PMIx"));
    EXPECT_THAT(error.what(), testing::HasSubstr("srun --mpi=pmix"));
  }
}

TEST(CheckPmi, AcceptsEveryOtherStart) {
  const Variables step = kSlurmJob + kSlurmStep;
  EXPECT_NO_THROW(check_pmi(facts_of({})));
  EXPECT_NO_THROW(check_pmi(facts_of(kSlurmJob)));
  EXPECT_NO_THROW(check_pmi(facts_of(step + Variables{{"PMIX_RANK", "2"}})));
  EXPECT_NO_THROW(check_pmi(facts_of(step + Variables{{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}})));
  EXPECT_NO_THROW(check_pmi(facts_of(step + Variables{{"OMPI_COMM_WORLD_SIZE", "32"}})));
}

TEST(CheckLaunch, AcceptsAWorldThatIsComplete) {
  EXPECT_NO_THROW(check_launch({"none", 1, 0, ""}, 1));
  EXPECT_NO_THROW(check_launch({"mpirun (Open MPI)", 4, 0, "mpirun"}, 4));
  EXPECT_NO_THROW(check_launch({"a PMIx launcher", 2, 1, "mpirun"}, 4));
}

TEST(CheckLaunch, RefusesAWorldThatIsSmallerThanWhatWasStarted) {
  try {
    check_launch(facts_of(kSlurmJob + kSlurmStep), 1);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUnavailable);
    EXPECT_THAT(error.what(),
                testing::StartsWith("srun (Slurm) started 4 tasks, but MPI connects only 1 of them"));
    EXPECT_THAT(error.what(), testing::HasSubstr("srun --mpi=pmix"));
  }
}

}  // namespace
}  // namespace convnet
