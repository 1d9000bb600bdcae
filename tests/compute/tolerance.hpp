#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "compute/judge.hpp"

// How far a float32 result may lie from the judge's.
//
// A sum of n terms, each rounded and added in any order, is off by at most lambda sqrt(n) u sum|terms|,
// except with a probability of 2 n exp(-lambda^2 / 2), where u = 2^-24 is the unit roundoff (Higham and Mary,
// "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41(5), 2019, theorem 3.1).
// With lambda = 6 the probability is 3e-8 n. sum|terms| is what the judge makes of the absolute values of all
// inputs; where a result is computed in stages, its magnitude is that of all stages together.

namespace convnet {

inline constexpr double kLambda = 6.0;
inline constexpr double kUnitRoundoff = std::numeric_limits<float>::epsilon() / 2.0;

// For a result that is a sum of `terms` terms whose absolute values add up to `magnitude`.
inline double tolerance(double terms, double magnitude) {
  return kLambda * std::sqrt(terms) * kUnitRoundoff * magnitude;
}

// The same for terms of random signs.
inline double random_sign_tolerance(double magnitude) {
  return kLambda * kLambda * kUnitRoundoff * magnitude;
}

// tolerance() for each of several results.
inline judge::Doubles tolerances(double terms, const judge::Doubles& magnitudes) {
  judge::Doubles result;
  for (const double magnitude : magnitudes) {
    result.push_back(tolerance(terms, magnitude));
  }
  return result;
}

// Whether each value found is within its tolerance of the one expected (a NaN never is); else says which is
// the farthest off.
template <class Found>
testing::AssertionResult all_within(const Found& found, std::span<const double> expected,
                                    std::span<const double> allowed) {
  if (found.size() != expected.size() || found.size() != allowed.size()) {
    return testing::AssertionFailure() << found.size() << " values, expected " << expected.size()
                                       << " within " << allowed.size() << " tolerances";
  }
  double worst_ratio = 0.0;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double distance = std::abs(static_cast<double>(found[i]) - expected[i]);
    const bool is_within = distance <= allowed[i];
    const double ratio = is_within ? 0.0 : distance / allowed[i];
    if (!is_within && !(ratio <= worst_ratio)) {
      worst_ratio = ratio;
      worst = i;
    }
  }
  if (worst_ratio == 0.0) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "value " << worst << " of " << found.size() << " is " << found[worst]
                                     << ", expected " << expected[worst] << " within " << allowed[worst];
}

// The same tolerance for all.
template <class Found>
testing::AssertionResult all_within(const Found& found, std::span<const double> expected, double allowed) {
  return all_within(found, expected, judge::Doubles(expected.size(), allowed));
}

inline judge::Doubles doubles(std::span<const float> values) {
  return {values.begin(), values.end()};
}

inline judge::Doubles absolute(std::span<const float> values) {
  judge::Doubles result;
  for (const float value : values) {
    result.push_back(std::abs(static_cast<double>(value)));
  }
  return result;
}

}  // namespace convnet
