#pragma once

namespace convnet {

// What this process can compute at most: the rate of independent fused multiply-adds on registers with so
// many threads, in 10^9 operations a second, a multiply-add counting as two. The best of several short runs.
double measure_fma_gflops(int threads);

}  // namespace convnet
