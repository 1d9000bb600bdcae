#include "convnet/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "convnet/error.hpp"
#include "convnet/random.hpp"

namespace convnet {
namespace {

// From here on torch.randperm draws 64-bit numbers.
constexpr std::int64_t kSampleLimit = std::numeric_limits<std::uint32_t>::max() / 20;

// 2^32 divided by the golden ratio: its multiples, modulo 2^32, keep far from one another, so no rank meets
// another rank's order within a million epochs.
constexpr std::uint64_t kRankSeedStride = 2654435769;

std::int64_t divide_rounding_up(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

void require(bool is_met, ExitCode code, const std::string& what, std::int64_t found,
             const std::string& expected) {
  if (!is_met) {
    throw Error(code, fmt::format("{} is {}: expected {}", what, found, expected));
  }
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  require(options.sample_count >= 1 && options.sample_count < kSampleLimit, ExitCode::kData,
          "the number of training images", options.sample_count, fmt::format("1 to {}", kSampleLimit - 1));
  require(options.batch >= 1, ExitCode::kUsage, "the batch", options.batch, "at least 1");
  require(options.world_size >= 1, ExitCode::kInternal, "the world size", options.world_size, "at least 1");
  require(options.rank >= 0 && options.rank < options.world_size, ExitCode::kInternal, "the rank",
          options.rank, fmt::format("0 to {}", options.world_size - 1));
}

RowRange Sampler::rows_held() const {
  if (options_.sharding == Sharding::kGlobal) {
    return {0, options_.sample_count};
  }
  return {exact_range(options_.sample_count, options_.rank, options_.world_size).first,
          shard_size(options_.rank)};
}

std::vector<std::int32_t> Sampler::epoch_rows(std::int64_t epoch, std::int64_t done) const {
  const std::uint64_t order_seed =
      options_.seed + (options_.reshuffle ? static_cast<std::uint64_t>(epoch) : 0);
  const auto size = static_cast<std::size_t>(shard_size(options_.rank, done));
  if (options_.sharding == Sharding::kStatic) {
    TorchGenerator generator(order_seed + static_cast<std::uint64_t>(options_.rank) * kRankSeedStride);
    std::vector<std::int32_t> rows = generator.permutation(static_cast<std::int32_t>(rows_held().count));
    rows.erase(rows.begin(), rows.end() - static_cast<std::ptrdiff_t>(size));
    return rows;
  }
  TorchGenerator generator(order_seed);
  const std::vector<std::int32_t> order =
      generator.permutation(static_cast<std::int32_t>(options_.sample_count));
  const auto first = static_cast<std::size_t>(done + options_.rank);
  std::vector<std::int32_t> rows(size);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = order[(first + i * static_cast<std::size_t>(options_.world_size)) % order.size()];
  }
  return rows;
}

std::int64_t Sampler::shard_size(int rank, std::int64_t done) const {
  const int world_size = options_.world_size;
  if (options_.sharding == Sharding::kStatic) {
    const std::int64_t whole = options_.tail == Tail::kPad
                                   ? divide_rounding_up(options_.sample_count, world_size)
                                   : exact_range(options_.sample_count, rank, world_size).count;
    return done < options_.sample_count ? whole - std::min(whole, done / world_size) : 0;
  }
  const std::int64_t left = options_.sample_count - std::min(done, options_.sample_count);
  if (options_.tail == Tail::kPad) {
    return divide_rounding_up(left, world_size);
  }
  return left / world_size + (rank < left % world_size ? 1 : 0);
}

std::int64_t Sampler::steps_per_epoch(std::int64_t done) const {
  const std::int64_t count = options_.sample_count;
  const int world_size = options_.world_size;
  const std::int64_t left = count - std::min(done, count);
  const std::int64_t largest_shard = options_.sharding == Sharding::kGlobal || left == 0
                                         ? divide_rounding_up(left, world_size)
                                         : divide_rounding_up(count, world_size) - done / world_size;
  return divide_rounding_up(largest_shard, options_.batch);
}

std::int64_t Sampler::samples_in_step(std::int64_t step, std::int64_t done) const {
  std::int64_t samples = 0;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    samples += std::clamp(shard_size(rank, done) - step * options_.batch, std::int64_t{0}, options_.batch);
  }
  return samples;
}

RowRange exact_range(std::int64_t count, int rank, int world_size) {
  const std::int64_t first = count * rank / world_size;
  return {first, count * (rank + 1) / world_size - first};
}

}  // namespace convnet
