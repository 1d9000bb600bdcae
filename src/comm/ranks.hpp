#pragma once

#include <string>
#include <vector>

#include "comm/mpi_communicator.hpp"

namespace convnet {

// Of this machine, as MPI knows it.
std::string host_name();

// One rank among all: where it runs and what it has there.
struct RankFacts {
  int rank = 0;
  std::string host;
  int local_rank = 0;     // among the ranks of its node
  int local_size = 1;     // ranks of its node
  int cores = 1;          // in its affinity mask
  int ranks_sharing = 1;  // of its node, itself included: those whose masks share a core with its own
};

// Facts of every rank, in rank order, on every rank. Collective.
std::vector<RankFacts> gather_rank_facts(MpiCommunicator& world, MpiCommunicator& node);

// Threads for a rank: `requested` if it is above 0, else the first number of OMP_NUM_THREADS if it is set,
// else the cores of the affinity mask divided by the ranks that share them, at least 1. Throws Error (kUsage)
// if OMP_NUM_THREADS is not a number above 0.
int thread_count(const RankFacts& facts, int requested);

// Whether all ranks gave the same `value`. Collective.
bool is_agreed(Communicator& world, const std::string& value);

// Throws Error (kUsage) on every rank unless all ranks gave the same `value`: the message names `what`, the
// ranks that differ from rank 0, and both values. Collective.
void require_agreement(Communicator& world, const std::string& what, const std::string& value);

}  // namespace convnet
