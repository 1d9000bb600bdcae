#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "compute/cuda/cuda_operations.hpp"
#include "compute/replica.hpp"
#include "compute/synthetic.hpp"

namespace convnet {

inline Network small_network() {
  return {{1, 12, 10}, {{.out_channels = 6, .kernel = 3, .padding = 1}, {.out_channels = 5}}, 7};
}

// A small training run, for comparing one way of running it with another.
struct Training {
  Network network = small_network();
  UpdateRule rule{.learning_rate = 0.05};
  int epochs = 3;
  int batch = 5;
  std::size_t rows = 17;   // of an epoch: the last batch is short
  std::size_t uneven = 0;  // so many fewer on rank 0
  bool announces_rows = true;
  bool asks_each_step = false;  // for its result, before the update
  int asks_after = 0;           // so many steps for the result of the last, each time; 0: at the end alone
};

struct TrainingResult {
  ModelState state;
  StepResult last;
  std::vector<double> losses;  // as asked for
};

// Trains `replica`, made for training.batch rows, on this rank's part of a synthetic data set.
inline TrainingResult train(Replica& replica, const Training& training, Communicator& world) {
  const auto count = static_cast<std::int64_t>(training.rows) * world.size();
  const Dataset dataset = synthetic_dataset(training.network, count, 3, 1);
  replica.load(dataset);
  replica.write_state(random_state(training.network, 1));
  std::vector<std::int32_t> rows(training.rows - (world.rank() == 0 ? training.uneven : 0));
  std::iota(rows.begin(), rows.end(), static_cast<std::int32_t>(training.rows) * world.rank());
  UpdateRule rule = training.rule;
  std::vector<double> losses;
  int steps = 0;
  for (int epoch = 0; epoch < training.epochs; ++epoch) {
    if (training.announces_rows) {
      replica.announce_rows(rows);
    }
    for (std::size_t first = 0; first < rows.size(); first += static_cast<std::size_t>(training.batch)) {
      const std::size_t size = std::min(rows.size() - first, static_cast<std::size_t>(training.batch));
      auto samples = static_cast<double>(size);
      world.all_reduce_sum(std::span(&samples, 1));
      replica.forward_backward(std::span(rows).subspan(first, size), 1.0F / static_cast<float>(samples));
      replica.all_reduce_gradients(world);
      if (training.asks_each_step) {
        replica.result();
      }
      replica.update(rule);
      ++rule.step;
      rule.learning_rate *= 0.99;
      if (training.asks_after > 0 && ++steps % training.asks_after == 0) {
        losses.push_back(replica.result().loss_sum);
      }
    }
  }
  const StepResult last = replica.result();
  return {replica.read_state(), last, losses};
}

inline TrainingResult train(const CudaOptions& options, const Training& training, Communicator& world,
                            Communicator* batch_norm = nullptr) {
  const auto replica = cuda_backend("any", options)
                           .make_replica({.network = training.network,
                                          .max_batch = training.batch,
                                          .batch_norm_communicator = batch_norm});
  return train(*replica, training, world);
}

}  // namespace convnet
