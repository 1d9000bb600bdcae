#include "comm/launch.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>

#include "convnet/error.hpp"

namespace convnet {
namespace {

std::optional<std::int64_t> number(const Environment& environment, const std::string& name) {
  const std::optional<std::string> text = environment(name);
  std::int64_t value = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), value).ec != std::errc()) {
    return std::nullopt;
  }
  return value;
}

// The tasks of the Slurm step that this process is a task of. A batch script and an interactive allocation
// are steps too, with reserved numbers; they start no tasks.
std::optional<std::int64_t> tasks_of_slurm_step(const Environment& environment) {
  constexpr std::int64_t kLastStep = 0xfffffff0;  // SLURM_MAX_NORMAL_STEP_ID of slurm.h
  const auto step = number(environment, "SLURM_STEP_ID");
  if (!step || *step > kLastStep || !number(environment, "SLURM_PROCID")) {
    return std::nullopt;
  }
  return number(environment, "SLURM_STEP_NUM_TASKS");
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

LaunchFacts launch_facts(const Environment& environment) {
  const auto rank_of = [&environment](const char* variable) {
    return static_cast<int>(number(environment, variable).value_or(0));
  };
  // mpirun and mpiexec come before Slurm, because inside a job they start their own helpers as a step, one
  // task a node, and the ranks inherit that step's variables.
  if (const auto size = number(environment, "OMPI_COMM_WORLD_SIZE")) {
    return {"mpirun (Open MPI)",
            static_cast<int>(*size),
            rank_of("OMPI_COMM_WORLD_RANK"),
            "the mpirun of the MPI library that the program is linked with (ldd shows which)",
            true,
            number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE") == size};
  }
  if (const auto size = number(environment, "PMI_SIZE")) {
    return {"mpiexec (PMI)", static_cast<int>(*size), rank_of("PMI_RANK"),
            "the mpirun of the MPI library that the program is linked with (ldd shows which), or under Slurm "
            "with srun --mpi=pmix"};
  }
  if (const auto tasks = tasks_of_slurm_step(environment)) {
    return {"srun (Slurm)", static_cast<int>(*tasks), rank_of("SLURM_PROCID"),
            "srun --mpi=pmix (srun --mpi=list shows what this cluster has), or with mpirun inside the job",
            environment("PMIX_RANK").has_value()};
  }
  // PMIx tells a task its rank but not the number of tasks: there are at least those up to it.
  if (const auto rank = number(environment, "PMIX_RANK")) {
    return {"a PMIx launcher", static_cast<int>(*rank) + 1, static_cast<int>(*rank),
            "the mpirun of the MPI library that the program is linked with (ldd shows which)"};
  }
  return {"none", 1, 0, "", true, true};
}

std::vector<std::pair<std::string, std::string>> open_mpi_settings(const LaunchFacts& facts) {
  if (!facts.on_one_node) {
    return {};
  }
  std::vector<std::pair<std::string, std::string>> settings{{"OMPI_MCA_pml", "ob1"}};
  if (facts.launcher == "none") {
    settings.emplace_back("OMPI_MCA_ess_singleton_isolated", "1");
  }
  return settings;
}

void check_pmi(const LaunchFacts& facts) {
  if (!facts.has_pmi) {
    throw Error(ExitCode::kUnavailable,
                fmt::format("{} started this task without PMIx, so that MPI cannot find the "
                            "others. Start the program with {}",
                            facts.launcher, facts.remedy));
  }
}

void check_launch(const LaunchFacts& facts, int world_size) {
  if (facts.expected_ranks > world_size) {
    throw Error(
        ExitCode::kUnavailable,
        fmt::format("{} started {} tasks, but MPI connects only {} of them, and each such group would train "
                    "on its own. Start the program with {}",
                    facts.launcher, facts.expected_ranks, world_size, facts.remedy));
  }
}

}  // namespace convnet
