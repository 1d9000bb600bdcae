#include "compute/cpu/all_finite.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/all_finite.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set
//
#include <hwy/highway.h>

#include "compute/cpu/for_each_vector.hpp"

HWY_BEFORE_NAMESPACE();
namespace convnet::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Reads 4 bytes a value once, with 2 operations: reading bounds it.
bool all_finite(std::span<const float> values) {
  bool result = true;
  for_each_vector(values.size(), [&](auto d, std::size_t i) HWY_ATTR {
    result &= hn::AllTrue(d, hn::IsFinite(hn::LoadU(d, values.data() + i)));
  });
  return result;
}

}  // namespace convnet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convnet::cpu {

HWY_EXPORT(all_finite);

bool all_finite(std::span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(all_finite)(values);
}

}  // namespace convnet::cpu
#endif
