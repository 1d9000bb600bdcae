// Loaded before MPI, makes of it a library that lets one thread alone call it.
#include <mpi.h>

extern "C" int MPI_Init_thread(int* argc, char*** argv, int, int* provided) {
  return PMPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, provided);
}
