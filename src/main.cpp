#include <mpi.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <string>

#include "app/commands.hpp"
#include "comm/launch.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/together.hpp"
#include "convnet/error.hpp"

namespace {

using convnet::Error;
using convnet::ExitCode;

// Parses the command line. Where several ranks were started, all of them have been given the same mistake, as
// a rule: they meet in the same place as ranks whose flags are right, and one message comes of it.
void parse(CLI::App& program, int argc, char** argv) {
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success&) {
    throw;
  } catch (const CLI::ParseError& complaint) {
    const Error usage(ExitCode::kUsage, std::string(complaint.what()) + " (--help tells more)");
    if (convnet::launch_facts(convnet::process_environment()).expected_ranks == 1) {
      throw usage;
    }
    try {
      convnet::check_pmi(convnet::launch_facts(convnet::process_environment()));
    } catch (const Error&) {
      throw usage;  // MPI would not start
    }
    const convnet::MpiSession session;
    convnet::MpiCommunicator world;
    convnet::together(world, [&usage] { throw usage; });
  }
}

// What has been printed must have arrived: on a full disk or a closed stdout it has not.
void require_printed() {
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) {
    throw Error(ExitCode::kIo, "standard output: cannot write what was printed");
  }
}

// Ends the job with one message: of an error on every rank rank 0 speaks, and the others wait for it to end
// them.
int fail(const std::string& message, ExitCode code, bool is_on_every_rank) {
  int was_started = 0;
  int was_ended = 0;
  MPI_Initialized(&was_started);
  MPI_Finalized(&was_ended);
  const bool is_under_mpi = was_started != 0 && was_ended == 0;
  int rank = 0;
  int size = 1;
  if (is_under_mpi) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
  if (is_on_every_rank && rank != 0) {
    MPI_Barrier(MPI_COMM_WORLD);
  }
  std::string speaker = "convnet: ";
  if (!is_on_every_rank && size > 1) {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    speaker += "rank " + std::to_string(rank) + " on " + host.data() + ": ";
  }
  std::cerr << speaker + message + "\n" << std::flush;
  if (size > 1) {
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  } else if (is_under_mpi) {
    MPI_Finalize();  // nobody is left to be ended, and aborting prints a page of its own
  }
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_color_st("convnet"));
  spdlog::set_pattern("%n: %^%l%$: %v");
  CLI::App program{"Data-parallel training of a small ConvNet, one rank a GPU or a share of the CPU",
                   "convnet"};
  program.set_version_flag("--version", "convnet " CONVNET_VERSION);
  program.require_subcommand(1);
  const std::array commands{convnet::add_train_command(program), convnet::add_convert_command(program),
                            convnet::add_info_command(program)};
  try {
    parse(program, argc, argv);
    auto code = ExitCode::kOk;
    for (const convnet::Command& command : commands) {
      if (command.parser->parsed()) {
        code = command.run();
      }
    }
    require_printed();
    return static_cast<int>(code);
  } catch (const CLI::Success& request) {  // --help, --version: once, however many ranks were started
    return convnet::launch_facts(convnet::process_environment()).rank == 0 ? program.exit(request) : 0;
  } catch (const Error& error) {
    return fail(std::string(error.what()) + " [" + error.location() + "]", error.code(),
                error.is_on_every_rank());
  } catch (const std::exception& error) {
    return fail(error.what(), ExitCode::kInternal, false);
  }
}
