// The MPI calls of a training step, for SimGrid's SMPI: simulated_step BYTES STEPS COMPUTE_MICROSECONDS
// Rank 0 prints the simulated seconds of a step: of all ranks from the last one's start to the last one's
// end.
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int count = std::atoi(argv[1]) / static_cast<int>(sizeof(float));
  const int steps = std::atoi(argv[2]);
  const auto compute = static_cast<useconds_t>(std::atoi(argv[3]));
  std::vector<float> gradient(static_cast<std::size_t>(count), 1.0F);
  MPI_Barrier(MPI_COMM_WORLD);
  double times[2] = {MPI_Wtime(), 0.0};
  for (int step = 0; step < steps; ++step) {
    usleep(compute);  // SMPI's own: passes simulated time
    MPI_Allreduce(MPI_IN_PLACE, gradient.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  times[1] = MPI_Wtime();
  double latest[2] = {0.0, 0.0};  // clocks of simulated ranks agree
  MPI_Reduce(times, latest, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    std::printf("%.12g\n", (latest[1] - latest[0]) / steps);
  }
  MPI_Finalize();
  return 0;
}
