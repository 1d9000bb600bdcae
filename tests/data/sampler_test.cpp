#include "convnet/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <ostream>
#include <set>
#include <span>

#include "convnet/error.hpp"
#include "convnet/sha256.hpp"
#include "golden/golden.hpp"

namespace convnet {
namespace {

using Rows = std::vector<std::int32_t>;

std::vector<Rows> rows_of_all_ranks(SamplerOptions options, std::int64_t epoch, std::int64_t done = 0) {
  std::vector<Rows> all;
  for (options.rank = 0; options.rank < options.world_size; ++options.rank) {
    all.push_back(Sampler(options).epoch_rows(epoch, done));
  }
  return all;
}

// --- The same as PyTorch -----------------------------------------------------------------------------------

struct RecordedRun {
  std::string file;
  int world_size;
  int epochs;
  bool reshuffle;
};

void PrintTo(const RecordedRun& run, std::ostream* out) {
  *out << run.file;
}

class RecordedOrder : public testing::TestWithParam<RecordedRun> {};

TEST_P(RecordedOrder, IsGivenToEachRank) {
  const auto [file, world_size, epochs, reshuffle] = GetParam();
  const GoldenFile golden(file);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const std::vector<Rows> all =
        rows_of_all_ranks({.sample_count = 60000, .world_size = world_size, .reshuffle = reshuffle}, epoch);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      EXPECT_EQ(all[rank],
                golden.integers("/indices/epoch_" + std::to_string(epoch) + "/rank_" + std::to_string(rank)))
          << "epoch " << epoch << " rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sampler, RecordedOrder,
                         testing::Values(RecordedRun{"seed_world1.h5", 1, 2, false},
                                         RecordedRun{"seed_world2.h5", 2, 1, false},
                                         RecordedRun{"seed_world4.h5", 4, 2, false},
                                         RecordedRun{"nesterov_world2.h5", 2, 2, true},
                                         RecordedRun{"adamw_world1.h5", 1, 1, false}));

// Recorded from PyTorch 2.13, for all ranks r in order:
//   s = DistributedSampler(range(n), P, r, seed=seed); s.set_epoch(epoch); list(s)
TEST(Sampler, PadsFromTheStartOfTheOrderAsPyTorchDoes) {
  EXPECT_EQ(rows_of_all_ranks({.sample_count = 10, .world_size = 4, .seed = 12345}, 0),
            (std::vector<Rows>{{0, 4, 5}, {7, 2, 3}, {1, 8, 0}, {6, 9, 7}}));
}

TEST(Sampler, RepeatsTheOrderWhereRanksOutnumberSamplesAsPyTorchDoes) {
  EXPECT_EQ(rows_of_all_ranks({.sample_count = 3, .world_size = 8, .seed = 7}, 0),
            (std::vector<Rows>{{0}, {1}, {2}, {0}, {1}, {2}, {0}, {1}}));
}

TEST(Sampler, AddsTheEpochToTheSeedBeyond32BitsAsPyTorchDoes) {
  const SamplerOptions options{.sample_count = 7, .world_size = 3, .seed = 0xffffffff, .reshuffle = true};
  EXPECT_EQ(rows_of_all_ranks(options, 0), (std::vector<Rows>{{2, 6, 0}, {1, 4, 2}, {3, 5, 1}}));
  EXPECT_EQ(rows_of_all_ranks(options, 1), (std::vector<Rows>{{4, 3, 1}, {0, 2, 4}, {5, 6, 0}}));
}

// As above; hashlib.sha256 over np.array(list(s), "<i4").tobytes() of all ranks in order.
TEST(Sampler, GivesPyTorchsOrderAtOtherSizesAndSeeds) {
  const auto sum = [](const SamplerOptions& options, std::int64_t epoch) {
    Sha256 running;
    for (const Rows& rows : rows_of_all_ranks(options, epoch)) {
      running.update(std::as_bytes(std::span(rows)));
    }
    return running.hex();
  };
  constexpr std::uint64_t kTwoTo31 = std::uint64_t{1} << 31;
  constexpr std::uint64_t kTwoTo32 = std::uint64_t{1} << 32;
  EXPECT_EQ(sum({.sample_count = 60000, .world_size = 7, .seed = kTwoTo31 + 7, .reshuffle = true}, 3),
            "3134d023d3e808668546b3290ca2ce700e3779122d937785caace54088a3baa6");
  EXPECT_EQ(sum({.sample_count = 112800, .world_size = 5, .seed = kTwoTo32 + 7, .reshuffle = true}, 2),
            "50d1445732cc443d65ec48e1adc783fec88c9cbfd8b5a80798b681bd76e39588");
  EXPECT_EQ(sum({.sample_count = 1001, .world_size = 64, .seed = 12345, .reshuffle = true}, 9),
            "be52c331241847f50a3df3fe538146037790dcd6e3dd406eb91adb9884acdbf2");
}

// --- Properties at many sizes ------------------------------------------------------------------------------

constexpr std::int64_t kSampleCounts[] = {1, 2, 3, 7, 10, 64, 101, 1000};
constexpr int kWorldSizes[] = {1, 2, 3, 4, 7, 16, 65};
constexpr std::int64_t kBatches[] = {1, 3, 10, 100};
constexpr Sharding kShardings[] = {Sharding::kGlobal, Sharding::kStatic};
constexpr Tail kTails[] = {Tail::kPad, Tail::kExact};

template <typename Check>
void for_many_sizes(Check check) {
  for (const std::int64_t count : kSampleCounts) {
    for (const int world_size : kWorldSizes) {
      SCOPED_TRACE(std::to_string(count) + " samples on " + std::to_string(world_size) + " ranks");
      check(SamplerOptions{.sample_count = count, .world_size = world_size, .seed = 5});
    }
  }
}

// As for_many_sizes, at several batches and with every sharding and tail.
template <typename Check>
void for_many_options(Check check) {
  for_many_sizes([&check](SamplerOptions options) {
    for (const std::int64_t batch : kBatches) {
      for (const Sharding sharding : kShardings) {
        for (const Tail tail : kTails) {
          options.batch = batch;
          options.sharding = sharding;
          options.tail = tail;
          check(options);
        }
      }
    }
  });
}

// How often each row of the file is visited in an epoch.
std::vector<int> visits(SamplerOptions options) {
  std::vector<int> counts(static_cast<std::size_t>(options.sample_count));
  for (options.rank = 0; options.rank < options.world_size; ++options.rank) {
    const Sampler sampler(options);
    for (const std::int32_t row : sampler.epoch_rows(0)) {
      ++counts.at(static_cast<std::size_t>(sampler.rows_held().first + row));
    }
  }
  return counts;
}

TEST(Sampler, VisitsEachSampleOnceWithAnExactTail) {
  for_many_sizes([](SamplerOptions options) {
    options.tail = Tail::kExact;
    for (const Sharding sharding : kShardings) {
      options.sharding = sharding;
      EXPECT_EQ(visits(options), std::vector<int>(static_cast<std::size_t>(options.sample_count), 1));
    }
  });
}

TEST(Sampler, VisitsEachSampleAtLeastOnceWithAPaddedTail) {
  for_many_sizes([](SamplerOptions options) {
    for (const Sharding sharding : kShardings) {
      options.sharding = sharding;
      const std::vector<int> counts = visits(options);
      if (sharding == Sharding::kGlobal || options.world_size <= options.sample_count) {
        EXPECT_LE(*std::ranges::max_element(counts) - *std::ranges::min_element(counts), 1);
      }
      EXPECT_GE(*std::ranges::min_element(counts), 1);
    }
  });
}

TEST(Sampler, GivesAllRanksEquallyManySamplesWithAPaddedTail) {
  for_many_sizes([](SamplerOptions options) {
    const std::int64_t expected = (options.sample_count + options.world_size - 1) / options.world_size;
    for (const Sharding sharding : kShardings) {
      options.sharding = sharding;
      for (const Rows& rows : rows_of_all_ranks(options, 0)) {
        EXPECT_EQ(static_cast<std::int64_t>(rows.size()), expected);
      }
    }
  });
}

TEST(Sampler, CountsTheSamplesOfEachStepAsTheRanksTakeThem) {
  for_many_options([](const SamplerOptions& options) {
    const std::vector<Rows> all = rows_of_all_ranks(options, 0);
    std::vector<std::int64_t> taken;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      EXPECT_EQ(Sampler(options).shard_size(static_cast<int>(rank)), std::ssize(all[rank]));
      for (std::int64_t i = 0; i < std::ssize(all[rank]); ++i) {
        taken.resize(std::max(taken.size(), static_cast<std::size_t>(i / options.batch + 1)));
        ++taken[static_cast<std::size_t>(i / options.batch)];
      }
    }
    const Sampler sampler(options);
    ASSERT_EQ(sampler.steps_per_epoch(), std::ssize(taken));
    for (std::int64_t step = 0; step < std::ssize(taken); ++step) {
      EXPECT_EQ(sampler.samples_in_step(step), taken[static_cast<std::size_t>(step)]) << "step " << step;
    }
  });
}

// So that P ranks x b and 1 rank x P b train on the same images, step by step.
TEST(Sampler, TakesInEachStepOfAllRanksWhatOneRankTakesWithTheirBatchesTogether) {
  constexpr std::int64_t kBatch = 3;
  for (const int ranks : {2, 5, 8}) {
    SamplerOptions options{.sample_count = 101, .world_size = ranks, .batch = kBatch, .tail = Tail::kExact};
    const std::vector<Rows> all = rows_of_all_ranks(options, 0);
    const std::int64_t steps = Sampler(options).steps_per_epoch();
    options.world_size = 1;
    options.batch = kBatch * ranks;
    const Rows of_one = Sampler(options).epoch_rows(0);
    ASSERT_EQ(Sampler(options).steps_per_epoch(), steps);
    for (std::int64_t step = 0; step < steps; ++step) {
      const auto part_of = [step](const Rows& rows, std::int64_t batch) {
        const std::int64_t first = std::min(step * batch, std::ssize(rows));
        const std::int64_t last = std::min(first + batch, std::ssize(rows));
        return Rows(rows.begin() + first, rows.begin() + last);
      };
      Rows taken;
      for (const Rows& rows : all) {
        const Rows part = part_of(rows, kBatch);
        taken.insert(taken.end(), part.begin(), part.end());
      }
      EXPECT_TRUE(std::ranges::is_permutation(taken, part_of(of_one, options.batch)))
          << ranks << " ranks, step " << step;
    }
  }
}

TEST(Sampler, GoesOnWithinAnEpochWhereItWasLeft) {
  for_many_options([](const SamplerOptions& options) {
    const std::vector<Rows> whole = rows_of_all_ranks(options, 0);
    const Sampler sampler(options);
    for (std::int64_t steps = 0; steps < sampler.steps_per_epoch(); ++steps) {
      const std::int64_t done = steps * options.batch * options.world_size;
      EXPECT_EQ(sampler.steps_per_epoch(done), sampler.steps_per_epoch() - steps);
      EXPECT_EQ(sampler.samples_in_step(0, done), sampler.samples_in_step(steps));
      const std::vector<Rows> rest = rows_of_all_ranks(options, 0, done);
      for (std::size_t rank = 0; rank < whole.size(); ++rank) {
        EXPECT_TRUE(std::ranges::equal(
            std::span(whole[rank]).subspan(static_cast<std::size_t>(steps * options.batch)), rest[rank]))
            << steps << " steps done, rank " << rank;
      }
    }
  });
}

TEST(Sampler, VisitsEachSampleOnceWhereTheRanksChangeWithinAnEpoch) {
  for (const Tail tail : kTails) {
    for (const int ranks_before : {1, 2, 3, 5}) {
      for (const int ranks_after : {1, 2, 4, 7}) {
        SamplerOptions options{.sample_count = 101, .world_size = ranks_before, .batch = 4, .tail = tail};
        const std::int64_t steps = 3;
        std::vector<int> counts(101, 0);
        for (const Rows& rows : rows_of_all_ranks(options, 0)) {
          for (const std::int32_t row : std::span(rows).first(static_cast<std::size_t>(steps * 4))) {
            ++counts[static_cast<std::size_t>(row)];
          }
        }
        options.world_size = ranks_after;
        std::int64_t rest = 0;
        for (const Rows& rows : rows_of_all_ranks(options, 0, steps * 4 * ranks_before)) {
          rest += std::ssize(rows);
          for (const std::int32_t row : rows) {
            ++counts[static_cast<std::size_t>(row)];
          }
        }
        EXPECT_EQ(*std::ranges::min_element(counts), 1) << ranks_before << " to " << ranks_after;
        const std::int64_t repeated = rest - (101 - steps * 4 * ranks_before);
        EXPECT_LT(repeated, tail == Tail::kExact ? 1 : ranks_after);
      }
    }
  }
}

TEST(Sampler, KeepsTheNumberOfSamplesWhereStaticShardsChangeWithinAnEpoch) {
  SamplerOptions options{
      .sample_count = 101, .world_size = 3, .batch = 4, .sharding = Sharding::kStatic, .tail = Tail::kExact};
  for (const std::int64_t done : {24, 48, 100}) {
    std::int64_t rest = 0;
    for (const Rows& rows : rows_of_all_ranks(options, 0, done)) {
      rest += std::ssize(rows);
    }
    EXPECT_NEAR(static_cast<double>(rest), static_cast<double>(101 - done), 2.0);  // done / 3 is rounded down
  }
  EXPECT_EQ(Sampler(options).steps_per_epoch(101), 0);
}

TEST(Sampler, HoldsRowsOfTheFileOnlyInOrderAndWithLittleOverlap) {
  for_many_sizes([](SamplerOptions options) {
    options.sharding = Sharding::kStatic;
    std::int64_t end_before = 0;
    for (options.rank = 0; options.rank < options.world_size; ++options.rank) {
      const RowRange range = Sampler(options).rows_held();
      EXPECT_LE(range.first, end_before);
      EXPECT_GE(range.first, end_before - 1);
      EXPECT_LE(range.first + range.count, options.sample_count);
      end_before = range.first + range.count;
    }
    EXPECT_EQ(end_before, options.sample_count);
  });
}

// --- Orders ------------------------------------------------------------------------------------------------

TEST(Sampler, LeavesARankWithoutSamplesWhereThereAreTooFew) {
  const SamplerOptions options{
      .sample_count = 2, .rank = 2, .world_size = 3, .batch = 5, .tail = Tail::kExact};
  EXPECT_EQ(Sampler(options).epoch_rows(0), Rows{});
  EXPECT_EQ(Sampler(options).steps_per_epoch(), 1);
  EXPECT_EQ(Sampler(options).samples_in_step(0), 2);
}

TEST(Sampler, KeepsTheOrderOfTheFirstEpochUnlessToldToReshuffle) {
  SamplerOptions options{.sample_count = 1000};
  for (const Sharding sharding : kShardings) {
    options.sharding = sharding;
    options.reshuffle = false;
    const Rows first = Sampler(options).epoch_rows(0);
    EXPECT_EQ(Sampler(options).epoch_rows(3), first);
    options.reshuffle = true;
    EXPECT_EQ(Sampler(options).epoch_rows(0), first);
    EXPECT_NE(Sampler(options).epoch_rows(3), first);
  }
}

TEST(Sampler, ShufflesEachStaticShardInAnOrderOfItsOwn) {
  // 8 ranks with equally many rows each, 5 epochs of 2 seeds that meet as seed + epoch: 8 x 6 different
  // orders.
  std::set<Rows> orders;
  for (const std::uint64_t seed : {0U, 1U}) {
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
      for (const Rows& rows : rows_of_all_ranks({.sample_count = 800,
                              .world_size = 8,
                              .seed = seed,
                              .sharding = Sharding::kStatic,
                              .reshuffle = true},
                                                epoch)) {
        orders.insert(rows);
      }
    }
  }
  EXPECT_EQ(orders.size(), 8U * 6U);
}

TEST(Sampler, ShufflesOneStaticShardAsPyTorchShufflesAll) {
  SamplerOptions options{.sample_count = 500, .seed = 3};
  const Rows global = Sampler(options).epoch_rows(0);
  options.sharding = Sharding::kStatic;
  EXPECT_EQ(Sampler(options).epoch_rows(0), global);
}

TEST(Sampler, RefusesSizesOutOfRange) {
  EXPECT_THROW(Sampler({.sample_count = 0}), Error);
  EXPECT_THROW(Sampler({.sample_count = 214'748'364}), Error);  // (2^32 - 1) / 20
  EXPECT_NO_THROW(Sampler({.sample_count = 214'748'363}));
  EXPECT_THROW(Sampler({.sample_count = 10, .batch = 0}), Error);
  EXPECT_THROW(Sampler({.sample_count = 10, .rank = 2, .world_size = 2}), Error);
}

TEST(ExactRange, SharesRowsOutInOrderAndEvenly) {
  for_many_sizes([](const SamplerOptions& options) {
    const std::int64_t least = options.sample_count / options.world_size;
    std::int64_t next = 0;
    for (int rank = 0; rank < options.world_size; ++rank) {
      const RowRange range = exact_range(options.sample_count, rank, options.world_size);
      EXPECT_EQ(range.first, next);
      EXPECT_GE(range.count, least);
      EXPECT_LE(range.count, least + 1);
      next += range.count;
    }
    EXPECT_EQ(next, options.sample_count);
  });
}

}  // namespace
}  // namespace convnet
