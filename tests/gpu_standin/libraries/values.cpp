#include "libraries/values.hpp"

#include <bit>
#include <cmath>

namespace standin::libraries {
namespace {

// Drops the lowest `dropped` bits of a float, rounding to nearest, ties to even.
std::uint32_t rounded_bits(float value, int dropped) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) {
    return bits | 0x00400000U;  // what is dropped could be all that makes it a NaN
  }
  const std::uint32_t half = (1U << (dropped - 1)) - 1U;
  const std::uint32_t odd = (bits >> dropped) & 1U;
  const std::uint32_t kept = ~((1U << dropped) - 1U);
  return (bits + half + odd) & kept;
}

}  // namespace

std::size_t size_of(Type type) {
  return type == Type::kFloat ? sizeof(float) : sizeof(std::uint16_t);
}

std::uint16_t to_bfloat16(float value) {
  return static_cast<std::uint16_t>(rounded_bits(value, 16) >> 16);
}

float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float round_to_tf32(float value) {
  return std::bit_cast<float>(rounded_bits(value, 13));
}

void round_to_tf32(std::vector<float>& values) {
  for (float& value : values) {
    value = round_to_tf32(value);
  }
}

std::vector<float> load(const void* first, Type type, std::size_t count) {
  if (type == Type::kFloat) {
    const auto* values = static_cast<const float*>(first);
    return {values, values + count};
  }
  const auto* halves = static_cast<const std::uint16_t*>(first);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = from_bfloat16(halves[i]);
  }
  return values;
}

void store(void* first, Type type, const std::vector<float>& results, Blend blend) {
  if (type == Type::kFloat) {
    auto* values = static_cast<float*>(first);
    for (std::size_t i = 0; i < results.size(); ++i) {
      values[i] = blend(results[i], values[i]);
    }
    return;
  }
  auto* halves = static_cast<std::uint16_t*>(first);
  for (std::size_t i = 0; i < results.size(); ++i) {
    halves[i] = to_bfloat16(blend(results[i], from_bfloat16(halves[i])));
  }
}

}  // namespace standin::libraries
