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
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "benchmark/fma_peak.hpp"
#include "benchmark/instruction_set.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/shared_dataset.hpp"
#include "compute/cpu/cpu_replica.hpp"
#include "convnet/error.hpp"
#include "convnet/sampler.hpp"

namespace convnet {
namespace {

constexpr int kGroups = 10;

struct Options {
  std::string data;
  int threads = 1;
  int batch = 100;
  int steps = 200;
  std::string isa = "native";
  bool only_steps = false;
};

// Milliseconds that an action took, once for each group of repetitions, in rising order.
struct Timing {
  std::vector<double> groups;

  double median() const { return (groups[(groups.size() - 1) / 2] + groups[groups.size() / 2]) / 2.0; }
  double minimum() const { return groups.front(); }
};

template <class Action>
Timing time_groups(int repetitions, const Action& action) {
  Timing timing;
  for (int group = 0; group < kGroups; ++group) {
    const Stopwatch stopwatch;
    for (int i = 0; i < repetitions; ++i) {
      action();
    }
    timing.groups.push_back(1e3 * stopwatch.seconds() / repetitions);
  }
  std::ranges::sort(timing.groups);
  return timing;
}

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

// The trainer's step, over and over, on one batch of this rank's samples after the other.
class Training {
 public:
  Training(const Options& options, const Dataset& dataset, const Network& network, MpiCommunicator& world)
      : rows_(rows_of_rank(options, dataset, world)),
        batch_(static_cast<std::size_t>(options.batch)),
        scale_(1.0F / static_cast<float>(options.batch * world.size())),
        world_(&world),
        replica_(
            make_cpu_replica({.network = network, .max_batch = options.batch, .threads = options.threads})) {
    replica_->load(dataset);
    replica_->write_state(initial_state(network, 0));
  }

  void step() {
    const Stopwatch stopwatch;
    replica_->forward_backward(std::span(rows_).subspan(next_, batch_), scale_);
    const double computed = stopwatch.seconds();
    replica_->all_reduce_gradients(*world_);
    const double summed = stopwatch.seconds();
    replica_->update(rule_);
    ++rule_.step;
    next_ = next_ + 2 * batch_ <= rows_.size() ? next_ + batch_ : 0;
    seconds_.forward_backward += computed;
    seconds_.all_reduce += summed - computed;
    seconds_.update += stopwatch.seconds() - summed;
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
    }
  }

  void require_finite() {
    if (!replica_->result().finite) {
      throw Error(ExitCode::kData, "the loss is not finite: what was measured is no training");
    }
  }

  // Of all steps since it was asked for last.
  struct Parts {
    double forward_backward = 0.0;
    double all_reduce = 0.0;  // with the wait for the slowest rank
    double update = 0.0;
  };
  Parts take_seconds() { return std::exchange(seconds_, {}); }

 private:
  static std::vector<std::int32_t> rows_of_rank(const Options& options, const Dataset& dataset,
                                                const MpiCommunicator& world) {
    const Sampler sampler({.sample_count = dataset.info.train_count,
                           .rank = world.rank(),
                           .world_size = world.size(),
                           .batch = options.batch});
    std::vector<std::int32_t> rows = sampler.epoch_rows(0);
    if (rows.size() < static_cast<std::size_t>(options.batch)) {
      throw Error(ExitCode::kUsage,
                  fmt::format("--batch {}: a rank has only {} images", options.batch, rows.size()));
    }
    return rows;
  }

  std::vector<std::int32_t> rows_;
  std::size_t batch_;
  std::size_t next_ = 0;
  float scale_;
  MpiCommunicator* world_;
  std::unique_ptr<Replica> replica_;
  UpdateRule rule_;
  Parts seconds_;
};

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
  Training training(options, dataset, network, world);
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
    Training training(options, dataset, network, world);
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
