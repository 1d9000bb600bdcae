#include "benchmark/fma_peak.hpp"

#include <algorithm>
#include <cstdint>

#include "base/clock.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmark/fma_peak.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convnet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains hide the latency of two units of up to six cycles, and fit into 16 registers with the
// factors.
constexpr std::int64_t kChains = 12;

// Returns the number of operations done. The chains start from different values, lest the compiler merge
// them, and stay finite; `sink` takes their sum, lest it leave them out.
std::int64_t multiply_and_add(std::int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.5F + *sink);
  const auto term = hn::Set(d, 1.0F + *sink);
  auto a = hn::Iota(d, *sink);
  auto b = hn::Add(a, term), c = hn::Add(b, term), e = hn::Add(c, term), f = hn::Add(e, term);
  auto g = hn::Add(f, term), h = hn::Add(g, term), i = hn::Add(h, term), j = hn::Add(i, term);
  auto k = hn::Add(j, term), l = hn::Add(k, term), m = hn::Add(l, term);
  for (std::int64_t round = 0; round < rounds; ++round) {
    a = hn::MulAdd(a, factor, term);
    b = hn::MulAdd(b, factor, term);
    c = hn::MulAdd(c, factor, term);
    e = hn::MulAdd(e, factor, term);
    f = hn::MulAdd(f, factor, term);
    g = hn::MulAdd(g, factor, term);
    h = hn::MulAdd(h, factor, term);
    i = hn::MulAdd(i, factor, term);
    j = hn::MulAdd(j, factor, term);
    k = hn::MulAdd(k, factor, term);
    l = hn::MulAdd(l, factor, term);
    m = hn::MulAdd(m, factor, term);
  }
  const auto first = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(f, g));
  const auto second = hn::Add(hn::Add(hn::Add(h, i), hn::Add(j, k)), hn::Add(l, m));
  *sink = hn::GetLane(hn::SumOfLanes(d, hn::Add(first, second)));
  return rounds * kChains * 2 * static_cast<std::int64_t>(hn::Lanes(d));
}

}  // namespace convnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convnet {

HWY_EXPORT(multiply_and_add);

double measure_fma_gflops(int threads) {
  constexpr int kRuns = 100;
  constexpr std::int64_t kRounds =
      400'000;  // about a millisecond: short enough to run undisturbed now and then
  double best = 0.0;
  for (int run = 0; run < kRuns; ++run) {
    std::int64_t operations = 0;
    const Stopwatch stopwatch;
#pragma omp parallel num_threads(threads) reduction(+ : operations)
    {
      float sink = 0.0F;
      operations += HWY_DYNAMIC_DISPATCH(multiply_and_add)(kRounds, &sink);
    }
    best = std::max(best, static_cast<double>(operations) / stopwatch.seconds());
  }
  return best / 1e9;
}

}  // namespace convnet
#endif
