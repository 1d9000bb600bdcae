#pragma once

#include <cstdint>
#include <vector>

#include "convnet/dataset.hpp"

namespace convnet {

enum class Sharding {
  kGlobal,  // every rank draws from the whole data set, as PyTorch's DistributedSampler does
  kStatic,  // every rank holds a contiguous range of the file and shuffles inside it
};

enum class Tail {
  kPad,    // all ranks have equally many samples: some come twice
  kExact,  // each sample comes once: some ranks may have one sample fewer, or none
};

struct SamplerOptions {
  std::int64_t sample_count = 0;  // of the whole training set, >= 1 and < 2^32 / 20
  int rank = 0;
  int world_size = 1;
  std::int64_t batch = 100;  // samples a rank and step, >= 1
  std::uint64_t seed = 0;
  Sharding sharding = Sharding::kGlobal;
  Tail tail = Tail::kPad;
  bool reshuffle = false;  // another order each epoch (set_epoch), else that of epoch 0 each time
};

// Who trains on what, when. All ranks can compute it for all ranks, so nothing needs to be sent.
//
// kGlobal is torch.utils.data.DistributedSampler(shuffle = True) bit for bit: torch.randperm(n) from a
// generator seeded with seed + epoch, repeated from its start until a multiple of the world size P is full
// (kPad); rank r takes entries r, r + P, r + 2P, ...
//
// kStatic gives rank r a range of the file and shuffles it with a generator seeded with seed + epoch +
// r * 2654435769, so that ranks differ. The range is exact_range (kExact), or ceil(n / P) rows from where
// that begins (kPad), so that a neighbour's first row may come in too.
class Sampler {
 public:
  // Throws Error if an option is out of its range.
  explicit Sampler(const SamplerOptions& options);

  const SamplerOptions& options() const { return options_; }

  // The training rows that this rank must hold in memory: all of them, or its range.
  RowRange rows_held() const;

  // Below, `done` is the number of samples that an epoch under way has seen already, on all ranks together: 0
  // for a whole epoch.

  // This rank's epoch from there on, as rows of SplitView (that is, relative to rows_held().first), in order.
  // kGlobal: rank r takes entries done + r, done + r + P, ... of the epoch's order, so that whatever the
  // number of ranks before, each sample comes once. kStatic: the first done / P rows of its own order are
  // left out; where the number of ranks has changed within an epoch, some samples come twice in it, and as
  // many not at all.
  std::vector<std::int32_t> epoch_rows(std::int64_t epoch, std::int64_t done = 0) const;

  // Samples of rank `rank` in any epoch.
  std::int64_t shard_size(int rank, std::int64_t done = 0) const;

  // Steps an epoch, the same on all ranks: enough for the largest shard. A rank whose shard is used up takes
  // part in a step with fewer samples, or none.
  std::int64_t steps_per_epoch(std::int64_t done = 0) const;

  // Samples of all ranks together in step `step` (0-based, from `done` on): what gradients are divided by.
  std::int64_t samples_in_step(std::int64_t step, std::int64_t done = 0) const;

 private:
  SamplerOptions options_;
};

// The contiguous part of 0 .. count - 1 that falls to `rank` of `world_size`: sizes differ by at most one,
// and the parts of all ranks together are the whole, each row once. Used for evaluation and for Tail::kExact.
RowRange exact_range(std::int64_t count, int rank, int world_size);

}  // namespace convnet
