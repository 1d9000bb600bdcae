#include <mpi.h>
#include <unistd.h>

#include <array>
#include <iostream>
#include <string>

#include "app/commands.hpp"
#include "convnet/error.hpp"

namespace {

bool is_under_mpi() {
  int is_initialized = 0;
  int is_finalized = 0;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  return is_initialized != 0 && is_finalized == 0;
}

// "convnet: " or, where there are several ranks, "convnet: rank 3 on node7: ".
std::string speaker() {
  int rank = 0;
  int size = 1;
  if (is_under_mpi()) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
  if (size == 1) {
    return "convnet: ";
  }
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return "convnet: rank " + std::to_string(rank) + " on " + host.data() + ": ";
}

// The message goes out once: of an error on all ranks rank 0 speaks, and the others wait for it to end the
// job.
int fail(const std::string& message, convnet::ExitCode code, bool is_on_every_rank) {
  int rank = 0;
  if (is_under_mpi()) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  }
  if (rank != 0 && is_on_every_rank) {
    MPI_Barrier(MPI_COMM_WORLD);
  }
  std::cerr << speaker() << message << std::endl;
  if (is_under_mpi()) {
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  }
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program{"Data-parallel training of a small ConvNet, one rank a GPU or a share of the CPU",
                   "convnet"};
  program.set_version_flag("--version", "convnet " CONVNET_VERSION);
  program.require_subcommand(1);
  const std::array commands{convnet::add_train_command(program), convnet::add_convert_command(program),
                            convnet::add_info_command(program)};
  try {
    program.parse(argc, argv);
    for (const convnet::Command& command : commands) {
      if (command.parser->parsed()) {
        command.run();
      }
    }
    return 0;
  } catch (const CLI::ParseError& error) {
    const int result = program.exit(error);
    return result == 0 ? 0 : static_cast<int>(convnet::ExitCode::kUsage);
  } catch (const convnet::Error& error) {
    return fail(std::string(error.what()) + " [" + error.location() + "]", error.code(),
                error.is_on_every_rank());
  } catch (const std::exception& error) {
    return fail(error.what(), convnet::ExitCode::kInternal, false);
  }
}
