#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace convnet {

// Looks up an environment variable; getenv in the program, a map in tests.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

Environment process_environment();

// What the environment says of the launcher that started this process.
struct LaunchFacts {
  std::string launcher;      // "mpirun (Open MPI)", "srun (Slurm)", "mpiexec (PMI)", or "none"
  int expected_ranks = 1;    // the number of tasks that the launcher started
  int rank = 0;              // of this one among them
  std::string remedy;        // what to do if MPI sees fewer, for example "srun --mpi=pmix"
  bool has_pmi = true;       // whether the launcher left MPI a way to find the other tasks
  bool on_one_node = false;  // whether all tasks are known to be on one
};

// Only the variables of the innermost launcher count: SLURM_* of an allocation without a step, or left over
// in a shell, say nothing; under mpirun inside a Slurm job those of mpirun count.
LaunchFacts launch_facts(const Environment& environment);

// To be called before MPI starts. Throws Error (kUnavailable) in a Slurm step without PMI (srun --mpi=none):
// Open MPI would end the process in MPI_Init, with code 1 and a page on how it should have been built.
void check_pmi(const LaunchFacts& facts);

// Environment variables that let Open MPI start in a tenth of the time, to be set before MPI starts unless
// the environment has them. Tasks on one node talk through its memory: the libraries of networks that are not
// there would be opened and asked first, for a quarter of a second. A process alone needs no daemon either.
std::vector<std::pair<std::string, std::string>> open_mpi_settings(const LaunchFacts& facts);

// Throws Error (kUnavailable) if the launcher started more tasks than MPI sees: each would train on its own.
void check_launch(const LaunchFacts& facts, int world_size);

}  // namespace convnet
