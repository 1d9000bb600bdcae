#include "benchmark/training_step.hpp"

#include <fmt/format.h>

#include "compute/cpu/cpu_replica.hpp"
#include "convnet/error.hpp"
#include "convnet/sampler.hpp"

namespace convnet {

TrainingStep::TrainingStep(const Dataset& dataset, const Network& network, int batch, int threads,
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

void TrainingStep::update() {
  replica_->update(rule_);
  ++rule_.step;
  next_ = next_ + 2 * batch_ <= rows_.size() ? next_ + batch_ : 0;
}

void TrainingStep::require_finite() {
  if (!replica_->result().finite) {
    throw Error(ExitCode::kData, "the loss is not finite: what was timed is no training");
  }
}

}  // namespace convnet
