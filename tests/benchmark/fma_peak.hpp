#pragma once

#include <string>

namespace convnet {

// What this process can compute at most: the rate of independent fused multiply-adds on registers.
struct FmaPeak {
  double gflops = 0.0;          // 10^9 operations a second of all threads, a multiply-add counting as two
  std::string instruction_set;  // in Highway's words, for example "AVX3" for AVX-512
};

// The best of several short runs with so many threads.
FmaPeak measure_fma_peak(int threads);

}  // namespace convnet
