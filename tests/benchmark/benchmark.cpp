// Times the training step of the CPU back end as the trainer runs it, on a data file in memory, and prints
// one line of JSON on rank 0. Alone or under mpirun.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "benchmark/fma_peak.hpp"
#include "benchmark/timing.hpp"
#include "benchmark/training.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/shared_dataset.hpp"
#include "convnet/error.hpp"

namespace convnet {
namespace {

struct Options {
  std::string data;
  int threads = 1;
  int batch = 100;
  int steps = 200;
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

Timing time_training(const Options& options, const Dataset& dataset, const Network& network,
                     MpiCommunicator& world) {
  constexpr int kWarmUpSteps = 20;
  Training training(dataset, network, options.batch, options.threads, world);
  training.run(kWarmUpSteps);
  const Timing timing = time_groups(std::max(1, options.steps / kGroups), [&] { training.step(); });
  training.require_finite();
  return timing;
}

// The sum of a gradient over all ranks, by itself.
Timing time_all_reduce(const Network& network, MpiCommunicator& world) {
  constexpr int kRepetitions = 20;
  std::vector<float> gradient(static_cast<std::size_t>(StateLayout(network).parameter_count()));
  world.barrier();
  return time_groups(kRepetitions, [&] { world.all_reduce_sum(std::span(gradient)); });
}

void run(const Options& options) {
  MpiCommunicator world;
  MpiCommunicator node = MpiCommunicator::of_node(world);
  const DataFileInfo info = DataFile(options.data).info();
  const Dataset dataset =
      load_shared_dataset(options.data, {0, info.train_count}, {0, info.test_count}, world, node);
  const Network network = tutorial_network(info.shape, info.classes);

  world.barrier();
  const FmaPeak peak = measure_fma_peak(options.threads);
  std::array total_peak{peak.gflops};
  world.all_reduce_sum(std::span<double>(total_peak));
  const Timing step = time_training(options, dataset, network, world);
  const Timing all_reduce = time_all_reduce(network, world);

  const double images_per_second = 1e3 * options.batch * world.size() / step.median();
  const double gflops = images_per_second * operations_per_sample(network) / 1e9;
  if (world.rank() == 0) {
    std::cout << nlohmann::ordered_json{{"version", CONVNET_VERSION},
                                        {"ranks", world.size()},
                                        {"threads", options.threads},
                                        {"batch", options.batch},
                                        {"steps", options.steps},
                                        {"instruction_set", peak.instruction_set},
                                        {"ms_per_step", step.median()},
                                        {"ms_per_step_min", step.minimum()},
                                        {"images_per_s", images_per_second},
                                        {"gflops", gflops},
                                        {"peak_gflops", total_peak[0]},
                                        {"share_of_peak", gflops / total_peak[0]},
                                        {"all_reduce_ms", all_reduce.median()}}
              << std::endl;
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
  CLI11_PARSE(program, argc, argv);
  const convnet::MpiSession session;
  try {
    convnet::run(options);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << fmt::format("convnet_benchmark: {}\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(convnet::ExitCode::kInternal));
    return 1;
  }
}
