#include "benchmark/training.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/clock.hpp"
#include "compute/cpu/cpu_replica.hpp"
#include "convnet/error.hpp"
#include "convnet/sampler.hpp"

namespace convnet {

Training::Training(const Dataset& dataset, const Network& network, int batch, int threads,
                   MpiCommunicator& world)
    : world_(world),
      batch_(static_cast<std::size_t>(batch)),
      scale_(1.0F / static_cast<float>(batch * world.size())) {
  const Sampler sampler({.sample_count = dataset.info.train_count,
                         .rank = world.rank(),
                         .world_size = world.size(),
                         .batch = batch});
  rows_ = sampler.epoch_rows(0);
  if (rows_.size() < batch_) {
    throw Error(ExitCode::kUsage, fmt::format("--batch {}: a rank has only {} images", batch, rows_.size()));
  }
  replica_ = make_cpu_replica({.network = network, .max_batch = batch, .threads = threads});
  replica_->load(dataset);
  replica_->write_state(initial_state(network, 0));
}

void Training::step() {
  const Stopwatch stopwatch;
  replica_->forward_backward(rows(), scale_);
  const double computed = stopwatch.seconds();
  replica_->all_reduce_gradients(world_);
  const double summed = stopwatch.seconds();
  replica_->update(rule_);
  ++rule_.step;
  next_ = next_ + 2 * batch_ <= rows_.size() ? next_ + batch_ : 0;
  seconds_.forward_backward += computed;
  seconds_.all_reduce += summed - computed;
  seconds_.update += stopwatch.seconds() - summed;
}

void Training::run(int steps) {
  for (int i = 0; i < steps; ++i) {
    step();
  }
}

void Training::require_finite() {
  if (!replica_->result().finite) {
    throw Error(ExitCode::kData, "the loss is not finite: what was measured is no training");
  }
}

Training::Parts Training::take_seconds() {
  return std::exchange(seconds_, {});
}

}  // namespace convnet
