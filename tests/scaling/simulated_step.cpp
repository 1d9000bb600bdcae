// The MPI calls of a training step, for SimGrid's SMPI: simulated_step BYTES COMPUTE_MICROSECONDS NODE
// Rank 0 prints the simulated seconds of a step: of all ranks from the last one's start to the last one's
// end. Where NODE ranks share a node, they sum among themselves first, then each with its like in all others.
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

// Of the calling rank, with all whose rank / group or, across groups, rank % group is its own.
MPI_Comm ranks_alike(int color) {
  MPI_Comm alike;
  MPI_Comm_split(MPI_COMM_WORLD, color, 0, &alike);
  return alike;
}

void sum(std::vector<float>& gradient, MPI_Comm ranks) {
  int size = 0;
  MPI_Comm_size(ranks, &size);
  if (size > 1) {
    MPI_Allreduce(MPI_IN_PLACE, gradient.data(), static_cast<int>(gradient.size()), MPI_FLOAT, MPI_SUM,
                  ranks);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) {
    return 2;
  }
  const auto compute = static_cast<useconds_t>(std::atoi(argv[2]));
  const int node = std::atoi(argv[3]);
  std::vector<float> gradient(static_cast<std::size_t>(std::atoi(argv[1])) / sizeof(float), 1.0F);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const MPI_Comm inside = ranks_alike(rank / node);
  const MPI_Comm between = ranks_alike(rank % node);
  MPI_Barrier(MPI_COMM_WORLD);
  double times[2] = {MPI_Wtime(), 0.0};
  usleep(compute);  // SMPI's own: passes simulated time
  sum(gradient, inside);
  sum(gradient, between);
  times[1] = MPI_Wtime();
  double latest[2] = {0.0, 0.0};  // clocks of simulated ranks agree
  MPI_Reduce(times, latest, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    std::printf("%.12g\n", latest[1] - latest[0]);
  }
  MPI_Finalize();
  return 0;
}
