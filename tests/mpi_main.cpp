// main() of the test programs that mpiexec starts: all ranks run the same tests in the same order, only rank
// 0 prints, and a failure on any rank fails the program.
#include <gtest/gtest.h>
#include <mpi.h>

#include <string>

#include "comm/mpi_communicator.hpp"

namespace {

// Prints, on the ranks that have no printer of their own, the failures alone.
class FailurePrinter : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed()) {
      int rank = 0;
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank, result.file_name(), result.line_number(),
                   result.message());
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const convnet::MpiSession session;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter);
  }
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return failed;
}
