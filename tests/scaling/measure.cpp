// Splits the training step of the CPU back end into its parts, and times the all-reduce over message sizes.
// Prints one line of JSON on rank 0: convnet_scaling DATA STEPS, alone or under mpirun, one thread a rank.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/shared_dataset.hpp"
#include "compute/cpu/cpu_replica.hpp"
#include "compute/cpu/gather.hpp"
#include "convnet/sampler.hpp"

namespace convnet {
namespace {

constexpr int kBatch = 100;

template <class Action>
double milliseconds(const Action& action) {
  const Stopwatch stopwatch;
  action();
  return 1e3 * stopwatch.seconds();
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Means in milliseconds over the steps, which add up. The gather is part of forward_backward and is timed by
// itself, on the same rows; the communication includes the wait for the slowest rank.
nlohmann::ordered_json time_step(const Dataset& dataset, const Network& network, int steps,
                                 MpiCommunicator& world) {
  const Sampler sampler({.sample_count = dataset.info.train_count,
                         .rank = world.rank(),
                         .world_size = world.size(),
                         .batch = kBatch});
  const std::vector<std::int32_t> rows = sampler.epoch_rows(0);
  const auto replica = make_cpu_replica({.network = network, .max_batch = kBatch, .threads = 1});
  replica->load(dataset);
  replica->write_state(initial_state(network, 0));
  std::vector<float> images(static_cast<std::size_t>(kBatch * network.input.size()));
  const float scale = 1.0F / static_cast<float>(kBatch * world.size());
  UpdateRule rule;
  std::vector<double> whole, passes, communication, data;
  constexpr int kWarmUpSteps = 10;
  for (int step = -kWarmUpSteps; step < steps; ++step) {
    const std::size_t places = rows.size() / kBatch;
    const std::size_t place = static_cast<std::size_t>(step + kWarmUpSteps) % places;
    const auto batch = std::span(rows).subspan(place * kBatch, kBatch);
    const Stopwatch stopwatch;
    const double pass = milliseconds([&] { replica->forward_backward(batch, scale); });
    const double sum = milliseconds([&] { replica->all_reduce_gradients(world); });
    replica->update(rule);
    ++rule.step;
    const double total = 1e3 * stopwatch.seconds();
    const double gather =
        milliseconds([&] { cpu::gather_images(dataset.train.images, network.input, batch, images.data()); });
    if (step >= 0) {
      whole.push_back(total);
      passes.push_back(pass);
      communication.push_back(sum);
      data.push_back(gather);
    }
  }
  const double gather = mean(data);
  const double compute = mean(passes) - gather;
  const double all = mean(whole);
  return {{"step_ms", all},
          {"compute_ms", compute},
          {"communication_ms", mean(communication)},
          {"data_ms", gather},
          {"rest_ms", all - compute - mean(communication) - gather}};
}

// [bytes, seconds] of an all-reduce: the median over groups, of the slowest rank.
nlohmann::json time_all_reduces(std::size_t own_bytes, MpiCommunicator& world) {
  constexpr int kGroups = 9;
  std::vector<std::size_t> sizes{own_bytes};
  for (std::size_t bytes = 1 << 10; bytes <= 16 << 20; bytes *= 4) {
    sizes.push_back(bytes);
  }
  std::ranges::sort(sizes);
  nlohmann::json times = nlohmann::json::array();
  for (const std::size_t bytes : sizes) {
    std::vector<float> values(bytes / sizeof(float));
    const int repetitions = static_cast<int>(std::clamp<std::size_t>((1 << 21) / bytes, 1, 100));
    std::vector<double> groups;
    for (int group = 0; group <= kGroups; ++group) {
      world.barrier();
      groups.push_back(milliseconds([&] {
        for (int i = 0; i < repetitions; ++i) {
          world.all_reduce_sum(std::span(values));
        }
      }));
    }
    groups.erase(groups.begin());  // warms up
    const double own = median(groups) / repetitions / 1e3;
    double slowest = own;
    for (const std::string& text : world.all_gather(std::to_string(own * 1e9))) {
      slowest = std::max(slowest, std::stod(text) / 1e9);
    }
    times.push_back({bytes, slowest});
  }
  return times;
}

void run(const std::string& path, int steps) {
  MpiCommunicator world;
  MpiCommunicator node = MpiCommunicator::of_node(world);
  const DataFileInfo info = DataFile(path).info();
  const Dataset dataset = load_shared_dataset(path, {0, info.train_count}, {0, info.test_count}, world, node);
  const Network network = tutorial_network(info.shape, info.classes);
  nlohmann::ordered_json report{{"ranks", world.size()}, {"batch", kBatch}, {"steps", steps}};
  const auto parameters = static_cast<std::size_t>(StateLayout(network).parameter_count());
  const std::size_t own_bytes = (parameters + 2) * sizeof(float);  // with loss and correct predictions
  report["gradient_bytes"] = own_bytes;
  report["step"] = time_step(dataset, network, steps, world);
  report["all_reduce"] = time_all_reduces(own_bytes, world);
  if (world.rank() == 0) {
    std::cout << report << std::endl;
  }
}

}  // namespace
}  // namespace convnet

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "convnet_scaling DATA STEPS\n";
    return 64;
  }
  const convnet::MpiSession session;
  try {
    convnet::run(argv[1], std::max(1, std::stoi(argv[2])));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "convnet_scaling: " << error.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
  }
}
