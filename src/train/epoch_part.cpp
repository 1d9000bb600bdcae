#include "train/epoch_part.hpp"

#include <algorithm>

namespace convnet {

EpochPart::EpochPart(const Sampler& sampler, const Position& start)
    : sampler_(sampler),
      start_(start),
      rows_(sampler.epoch_rows(start.epoch - 1, start.samples)),
      steps_(sampler.steps_per_epoch(start.samples)) {
  for (std::int64_t step = 0; step < steps_; ++step) {
    samples_.push_back(sampler.samples_in_step(step, start.samples));
  }
}

std::span<const std::int32_t> EpochPart::rows_of(std::int64_t step) const {
  const auto batch = static_cast<std::size_t>(sampler_.options().batch);
  const std::size_t first = std::min(static_cast<std::size_t>(step) * batch, rows_.size());
  return std::span(rows_).subspan(first, std::min(batch, rows_.size() - first));
}

// Padding does not count as seen; and an epoch is not over while any rank has a step left.
Position EpochPart::after(std::int64_t step) const {
  const SamplerOptions& options = sampler_.options();
  const std::int64_t all = options.sample_count;
  const std::int64_t done = step + 1;
  const std::int64_t seen = start_.samples + done * options.batch * options.world_size;
  return {.epoch = start_.epoch,
          .step = start_.step + done,
          .samples = done == steps_ ? all : std::min(seen, all - 1),
          .global_step = start_.global_step + done};
}

}  // namespace convnet
