// Times the training step of the CPU back end as the trainer runs it, on a data file in memory, and prints
// one line of JSON on rank 0. Alone or under mpirun.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "benchmark/fma_peak.hpp"
#include "benchmark/instruction_set.hpp"
#include "benchmark/timing.hpp"
#include "benchmark/training.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/shared_dataset.hpp"
#include "compute/cpu/cpu_replica.hpp"
#include "convnet/error.hpp"

namespace convnet {
namespace {

struct Options {
  std::string data;
  int threads = 1;
  int batch = 100;
  int steps = 200;
  std::string isa = "native";
  bool only_steps = false;
};

// Floating-point operations in the convolutions and the linear layer for one sample of a training step: a
// product and a sum for each weight at each place of the output (also where it meets padding), for the
// output, for the gradient of the weights and, but in the first block, for the gradient of the input.
double operations_per_sample(const Network& network) {
  double products = 0.0;
  for (std::size_t i = 0; i < network.blocks.size(); ++i) {
    const ConvBlock& block = network.blocks[i];
    const ImageShape input = network.block_input(i);
    const std::int64_t weights_per_output = std::int64_t{input.channels} * block.kernel * block.kernel;
    const std::int64_t passes = i == 0 ? 2 : 3;
    products += static_cast<double>(passes * block.convolved(input).size() * weights_per_output);
  }
  const ImageShape features = network.block_input(network.blocks.size());
  products += static_cast<double>(3 * features.size() * network.classes);
  return 2.0 * products;
}

// The sum of a gradient over all ranks, by itself.
Timing time_all_reduce(const Network& network, MpiCommunicator& world) {
  constexpr int kRepetitions = 20;
  std::vector<float> gradient(static_cast<std::size_t>(StateLayout(network).parameter_count()));
  world.barrier();
  return time_groups(kRepetitions, [&] { world.all_reduce_sum(std::span(gradient)); });
}

// The most memory, in 10^6 bytes, that this process ever had, shared pages that it touched included.
double peak_memory_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) {
      return std::stod(line.substr(6)) * 1024 / 1e6;  // the file has kibibytes
    }
  }
  throw Error(ExitCode::kUnavailable, "/proc/self/status has no VmHWM");
}

// What a run was made of, without which its figures mean little.
nlohmann::ordered_json describe(const Options& options, const MpiCommunicator& world) {
  return {{"version", CONVNET_VERSION},
          {"build", CONVNET_BUILD},
          {"libraries", cpu_library() + ", " CONVNET_HIGHWAY},
          {"ranks", world.size()},
          {"threads", options.threads},
          {"batch", options.batch},
          {"steps", options.steps},
          {"instruction_set", instruction_set()}};
}

// Measures the peak, the step, its parts, and the all-reduce alone. Collective.
nlohmann::ordered_json measure(const Options& options, const Dataset& dataset, const Network& network,
                               MpiCommunicator& world) {
  constexpr int kWarmUpSteps = 20;
  world.barrier();
  std::array peak{measure_fma_gflops(options.threads)};
  world.all_reduce_sum(std::span<double>(peak));
  Training training(dataset, network, options.batch, options.threads, world);
  training.run(kWarmUpSteps);
  training.take_seconds();
  const int group = std::max(1, options.steps / kGroups);
  const Timing step = time_groups(group, [&] { training.step(); });
  training.require_finite();
  const Training::Parts parts = training.take_seconds();
  const double ms_a_step = 1e3 / (group * kGroups);
  const double images_per_second = 1e3 * options.batch * world.size() / step.median();
  const double gflops = images_per_second * operations_per_sample(network) / 1e9;
  return {{"ms_per_step", step.median()},
          {"ms_per_step_min", step.minimum()},
          {"forward_backward_ms", parts.forward_backward * ms_a_step},
          {"exchange_ms", parts.all_reduce * ms_a_step},
          {"update_ms", parts.update * ms_a_step},
          {"images_per_s", images_per_second},
          {"gflops", gflops},
          {"peak_gflops", peak[0]},
          {"share_of_peak", gflops / peak[0]},
          {"all_reduce_ms", time_all_reduce(network, world).median()}};
}

void run(const Options& options) {
  MpiCommunicator world;
  MpiCommunicator node = MpiCommunicator::of_node(world);
  const DataFileInfo info = DataFile(options.data).info();
  const RowRange train{0, info.train_count};
  const RowRange test{0, info.test_count};
  const Dataset dataset = load_shared_dataset(options.data, train, test, world, node);
  const Network network = tutorial_network(info.shape, info.classes);

  nlohmann::ordered_json report = describe(options, world);
  if (options.only_steps) {
    Training training(dataset, network, options.batch, options.threads, world);
    training.run(options.steps);
    training.require_finite();
  } else {
    report.update(measure(options, dataset, network, world));
    report["peak_memory_mb"] = peak_memory_megabytes();
    report["data_set_mb"] = static_cast<double>(bytes_for(info, train, test)) / 1e6;
  }
  if (world.rank() == 0) {
    std::cout << report << std::endl;
  }
}

}  // namespace
}  // namespace convnet

int main(int argc, char** argv) {
  convnet::Options options;
  CLI::App program{"Times the training step and prints one line of JSON", "convnet_benchmark"};
  program.add_option("--data", options.data, "Data file made by `convnet convert`")->required();
  program.add_option("--threads", options.threads, "Threads a rank")->check(CLI::PositiveNumber);
  program.add_option("--batch", options.batch, "Images a rank and step")->check(CLI::PositiveNumber);
  program.add_option("--steps", options.steps, "Steps to time, in 10 groups")->check(CLI::PositiveNumber);
  program.add_option("--isa", options.isa, "Newest instruction set to use")
      ->check(CLI::IsMember({"native", "avx2"}));
  program.add_flag("--only-steps", options.only_steps,
                   "Do the steps and time nothing, for tools that count instructions");
  CLI11_PARSE(program, argc, argv);
  const convnet::MpiSession session;
  try {
    if (options.isa == "avx2") {
      convnet::restrict_to_avx2();
    }
    convnet::run(options);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << fmt::format("convnet_benchmark: {}\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(convnet::ExitCode::kInternal));
    return 1;
  }
}
