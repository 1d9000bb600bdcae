#include "benchmark/instruction_set.hpp"

#include <hwy/highway.h>

#include <dnnl.hpp>

#include "convnet/error.hpp"

namespace convnet {

std::string instruction_set() {
  const std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);  // the lowest bit is the best
}

void restrict_to_avx2() {
  const std::int64_t targets = hwy::SupportedTargets();
  if ((targets & HWY_AVX2) == 0 || dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2) != dnnl::status::success) {
    throw Error(ExitCode::kUnavailable, "--isa avx2: this processor or this build has no AVX2");
  }
  // Better targets are lower bits. DisableTargets would be undone by the next call of SupportedTargets.
  hwy::SetSupportedTargetsForTest(targets & ~(HWY_AVX2 - 1));
}

}  // namespace convnet
