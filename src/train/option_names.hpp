#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "train/train_options.hpp"

// The words that stand for the values of an option, on the command line and in the log.

namespace convnet {

template <class Enum, std::size_t N>
using Names = std::array<std::pair<std::string_view, Enum>, N>;

inline constexpr Names<Sharding, 2> kShardingNames{
    {{"global", Sharding::kGlobal}, {"static", Sharding::kStatic}}};
inline constexpr Names<Tail, 2> kTailNames{{{"pad", Tail::kPad}, {"exact", Tail::kExact}}};
inline constexpr Names<Optimizer, 2> kOptimizerNames{
    {{"sgd", Optimizer::kSgd}, {"adamw", Optimizer::kAdamW}}};
inline constexpr Names<ScheduleKind, 4> kScheduleNames{{{"constant", ScheduleKind::kConstant},
                                                        {"step", ScheduleKind::kStep},
                                                        {"cosine", ScheduleKind::kCosine},
                                                        {"onecycle", ScheduleKind::kOneCycle}}};
inline constexpr Names<LearningRateScale, 3> kLearningRateScaleNames{{{"none", LearningRateScale::kNone},
                                                                      {"linear", LearningRateScale::kLinear},
                                                                      {"sqrt", LearningRateScale::kSqrt}}};
inline constexpr Names<BatchNorm, 2> kBatchNormNames{
    {{"local", BatchNorm::kLocal}, {"sync", BatchNorm::kSync}}};
inline constexpr Names<BatchNormBuffers, 2> kBatchNormBufferNames{
    {{"rank0", BatchNormBuffers::kRank0}, {"mean", BatchNormBuffers::kMean}}};
inline constexpr Names<OnNonfinite, 2> kOnNonfiniteNames{
    {{"stop", OnNonfinite::kStop}, {"skip", OnNonfinite::kSkip}}};
inline constexpr Names<Device, 3> kDeviceNames{
    {{"auto", Device::kAuto}, {"cpu", Device::kCpu}, {"cuda", Device::kCuda}}};

inline constexpr Names<Precision, 3> kPrecisionNames{
    {{"fp32", Precision::kFp32}, {"tf32", Precision::kTf32}, {"bf16", Precision::kBf16}}};
inline constexpr Names<Kernels, 2> kKernelNames{{{"fused", Kernels::kFused}, {"cudnn", Kernels::kCudnn}}};
inline constexpr Names<CommLibrary, 3> kCommLibraryNames{
    {{"auto", CommLibrary::kAuto}, {"nccl", CommLibrary::kNccl}, {"mpi", CommLibrary::kMpi}}};
inline constexpr Names<CudaGraph, 3> kCudaGraphNames{
    {{"auto", CudaGraph::kAuto}, {"on", CudaGraph::kOn}, {"off", CudaGraph::kOff}}};

template <class Enum, std::size_t N>
constexpr std::string_view name_of(Enum value, const Names<Enum, N>& names) {
  for (const auto& [name, named] : names) {
    if (named == value) {
      return name;
    }
  }
  return "?";
}

}  // namespace convnet
