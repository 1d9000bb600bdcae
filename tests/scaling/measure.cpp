// Splits the training step of the CPU back end into its parts, and times the all-reduce over message sizes.
// Prints one line of JSON on rank 0. Alone or under mpirun, one thread a rank.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "benchmark/timing.hpp"
#include "benchmark/training.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/shared_dataset.hpp"
#include "compute/cpu/gather.hpp"
#include "convnet/error.hpp"

namespace convnet {
namespace {

constexpr int kBatch = 100;

struct Options {
  std::string data;
  int steps = 100;
};

template <class Action>
double seconds_of(const Action& action) {
  const Stopwatch stopwatch;
  action();
  return stopwatch.seconds();
}

// Mean milliseconds of a step and of its parts, which add up. The gather is part of the forward pass and is
// timed by itself, on the same rows; the communication includes the wait for the slowest rank; the rest is
// the update.
nlohmann::ordered_json time_step(const Dataset& dataset, const Network& network, int steps,
                                 MpiCommunicator& world) {
  constexpr int kWarmUpSteps = 10;
  Training training(dataset, network, kBatch, 1, world);
  std::vector<float> images(static_cast<std::size_t>(kBatch * network.input.size()));
  training.run(kWarmUpSteps);
  training.take_seconds();
  double whole = 0.0;
  double gather = 0.0;
  for (int i = 0; i < steps; ++i) {
    gather += seconds_of(
        [&] { cpu::gather_images(dataset.train.images, network.input, training.rows(), images.data()); });
    whole += seconds_of([&] { training.step(); });
  }
  training.require_finite();
  const Training::Parts parts = training.take_seconds();
  const double scale = 1e3 / steps;
  return {{"step_ms", whole * scale},
          {"compute_ms", (parts.forward_backward - gather) * scale},
          {"communication_ms", parts.all_reduce * scale},
          {"data_ms", gather * scale},
          {"rest_ms", parts.update * scale}};
}

// [bytes, seconds] of an all-reduce, for each of many sizes: the median over groups, on rank 0.
nlohmann::json time_all_reduces(std::size_t own_bytes, MpiCommunicator& world) {
  std::vector<std::size_t> sizes{own_bytes};
  for (std::size_t bytes = 1 << 10; bytes <= 16 << 20; bytes *= 4) {
    sizes.push_back(bytes);
  }
  std::ranges::sort(sizes);
  nlohmann::json times = nlohmann::json::array();
  for (const std::size_t bytes : sizes) {
    std::vector<float> values(bytes / sizeof(float));
    const auto all_reduce = [&] { world.all_reduce_sum(std::span(values)); };
    all_reduce();  // warms up
    const auto repetitions = static_cast<int>(std::clamp<std::size_t>((1 << 21) / bytes, 1, 100));
    times.push_back({bytes, 1e-3 * time_groups(repetitions, all_reduce).median()});
  }
  return times;
}

void run(const Options& options) {
  MpiCommunicator world;
  MpiCommunicator node = MpiCommunicator::of_node(world);
  const DataFileInfo info = DataFile(options.data).info();
  const Dataset dataset =
      load_shared_dataset(options.data, {0, info.train_count}, {0, info.test_count}, world, node);
  const Network network = tutorial_network(info.shape, info.classes);
  const auto parameters = static_cast<std::size_t>(StateLayout(network).parameter_count());
  const std::size_t own_bytes = (parameters + 2) * sizeof(float);  // with loss and correct predictions
  const auto step = time_step(dataset, network, options.steps, world);
  const auto all_reduce = time_all_reduces(own_bytes, world);
  if (world.rank() == 0) {
    std::cout << nlohmann::ordered_json{{"ranks", world.size()},  {"batch", kBatch},
                                        {"steps", options.steps}, {"gradient_bytes", own_bytes},
                                        {"step", step},           {"all_reduce", all_reduce}}
              << std::endl;
  }
}

// Ends the job on all ranks.
int fail(const std::exception& error, ExitCode code) {
  std::cerr << fmt::format("convnet_scaling: {}\n", error.what());
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  return static_cast<int>(code);
}

}  // namespace
}  // namespace convnet

int main(int argc, char** argv) {
  using convnet::ExitCode;
  convnet::Options options;
  CLI::App program{"Times a training step's parts and the all-reduce; prints one line of JSON",
                   "convnet_scaling"};
  program.add_option("--data", options.data, "Data file made by `convnet convert`")->required();
  program.add_option("--steps", options.steps, "Steps to time")->check(CLI::PositiveNumber);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& end) {  // --help, too
    return program.exit(end) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  }
  const convnet::MpiSession session;
  try {
    convnet::run(options);
    return 0;
  } catch (const convnet::Error& error) {
    return convnet::fail(error, error.code());
  } catch (const std::exception& error) {
    return convnet::fail(error, ExitCode::kInternal);
  }
}
