#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// The numbers that lie in a GPU's memory, and how the libraries round them.
namespace standin::libraries {

enum class Type { kFloat, kBfloat16 };

std::size_t size_of(Type type);

// Rounds to the nearest bfloat16, ties to even; a NaN stays one.
std::uint16_t to_bfloat16(float value);
float from_bfloat16(std::uint16_t bits);

// Rounds to the nearest number with TF32's 10 bits of mantissa, ties to even.
float round_to_tf32(float value);
void round_to_tf32(std::vector<float>& values);

// The values at `first`, as float.
std::vector<float> load(const void* first, Type type, std::size_t count);

// How a result meets what was there: alpha x result + beta x before. With beta = 0 what was there is not
// read.
struct Blend {
  float alpha = 1.0F;
  float beta = 0.0F;

  float operator()(float result, float before) const {
    return beta == 0.0F ? alpha * result : alpha * result + beta * before;
  }
};

void store(void* first, Type type, const std::vector<float>& results, Blend blend);

}  // namespace standin::libraries
