#include <gmock/gmock.h>

#include <source_location>
#include <stdexcept>

#include "compute/cuda/check.hpp"
#include "standin_test.hpp"

// The plug-in's own names the library's text; here an error need only be seen.
void convnet::cuda::check(cudaError_t result, const char* call, std::source_location) {
  if (result != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(result));
  }
}

namespace standin {
namespace {

using testing::ElementsAre;

class Kernel : public StandinTest {};

TEST_P(Kernel, SumsBlocksBySharedMemoryAndShuffles) {
  constexpr int kBlocks = 3;
  constexpr int kThreads = 96;
  const std::vector<float> values = counting(kBlocks * kThreads);
  auto* in = make_device_memory(values.size());
  upload(in, values);
  for (const planted::Kernels* kernels : {&checked_, &fast_}) {
    kernels->block_sums(stream_, kBlocks, kThreads, in, second_);
    EXPECT_THAT(download(second_, kBlocks), ElementsAre(4560.0F, 13776.0F, 22992.0F));
  }
  EXPECT_SUCCESS(cudaFree(in));
}

TEST_P(Kernel, ExchangesValuesWithABarrierBetween) {
  for (const planted::Kernels* kernels : {&checked_, &fast_}) {
    kernels->reverse_block(stream_, 65, true, first_, second_);
    EXPECT_EQ(download(second_, 65)[1], 63.0F);
    kernels->reverse_warp(stream_, true, first_, second_);
    EXPECT_EQ(download(second_, 32)[1], 30.0F);
  }
}

TEST_P(Kernel, CountsAtomically) {
  auto* count = make_device_memory<int>(1);
  for (const planted::Kernels* kernels : {&checked_, &fast_}) {
    EXPECT_SUCCESS(cudaMemsetAsync(count, 0, sizeof(int), stream_));
    kernels->count_threads(stream_, 5, 70, count);
    EXPECT_THAT(download(count, 1), ElementsAre(350));
  }
  EXPECT_SUCCESS(cudaFree(count));
}

// What only shows when the work is done.
#define EXPECT_VIOLATION(text, ...)     \
  EXPECT_DEATH(                         \
      {                                 \
        __VA_ARGS__;                    \
        cudaStreamSynchronize(stream_); \
      },                                \
      "gpu stand-in: .*" text)

TEST_P(Kernel, MissingBarriersAreCaught) {
  EXPECT_VIOLATION("reverse_block_kernel, block .0,0,0., thread .* races with thread .*no barrier",
                   checked_.reverse_block(stream_, 65, false, first_, second_));
  EXPECT_VIOLATION("reverse_warp_kernel, block .0,0,0., thread .* races with thread .*no barrier",
                   checked_.reverse_warp(stream_, false, first_, second_));
}

TEST_P(Kernel, BlocksThatWriteTheSameBytesAreCaught) {
  EXPECT_VIOLATION("write_from_each_block_kernel, block .* races with block .* not both by atomic",
                   checked_.write_from_each_block(stream_, 2, reinterpret_cast<int*>(second_)));
}

TEST_P(Kernel, DivergentThreadsAreCaught) {
  for (const planted::Kernels* kernels : {&checked_, &fast_}) {
    EXPECT_VIOLATION(
        "divergent_barrier_kernel, block .0,0,0.: divergent .*5 of its threads wait at __syncthreads",
        kernels->divergent_barrier(stream_, 40, 5));
    EXPECT_VIOLATION("shuffle_without_a_lane_kernel, .*names lane 7, which has ended|have ended",
                     kernels->shuffle_without_a_lane(stream_, second_));
  }
}

TEST_P(Kernel, AccessesOutsideAnAllocationAreCaught) {
  float* neighbour = make_device_memory(kCount);
  EXPECT_VIOLATION("thread .0,0,0. reads 4 bytes  ?at offset 400 of an allocation of 400 bytes, beyond",
                   checked_.copy_element(stream_, first_, kCount, second_, 0));
  EXPECT_VIOLATION("writes 4 bytes  ?at offset 400 of an allocation of 400 bytes, beyond",
                   checked_.copy_element(stream_, first_, 0, second_, kCount));
  EXPECT_VIOLATION("writes 4 bytes of device memory at offset 4096 of an allocation of 400 bytes, beyond",
                   checked_.copy_element(stream_, first_, 0, second_, 1024));
  EXPECT_VIOLATION(
      "writes 4 bytes of memory that it has no pointer to, at offset 0 of an allocation of 400 bytes",
      checked_.copy_element(stream_, first_, 0, second_, neighbour - second_));
  EXPECT_VIOLATION("copy_element_kernel' wrote at offset 400",
                   fast_.copy_element(stream_, first_, 0, second_, kCount));
  EXPECT_VIOLATION("copy_element_kernel' touches memory",
                   fast_.copy_element(stream_, first_, 0, second_, -3));
  EXPECT_SUCCESS(cudaFree(neighbour));
}

TEST_P(Kernel, PointersToTheHostAreCaught) {
  std::vector<float> pageable(kCount);
  float* pinned = make_pinned_memory(kCount);
  EXPECT_VIOLATION("add_one_kernel, .* reads 4 bytes of the host.s memory",
                   checked_.add_one(stream_, pageable.data(), kCount));
  EXPECT_VIOLATION("reads 4 bytes of pinned memory", checked_.add_one(stream_, pinned, kCount));
  EXPECT_SUCCESS(cudaFreeHost(pinned));
}

TEST_P(Kernel, UnwrittenBytesAreCaught) {
  EXPECT_VIOLATION("reads 4 bytes that were never written", checked_.add_one(stream_, second_, kCount));
  EXPECT_VIOLATION("reads 4 bytes of shared memory that its block has not written",
                   checked_.keep_shared(stream_, 2, second_));
}

TEST_P(Kernel, LaunchesOfImpossibleShapesFail) {
  fast_.launch_shape(stream_, dim3(1, 2, 3), dim3(4, 8, 2));
  EXPECT_THROW(fast_.launch_shape(stream_, dim3(0), dim3(32)), std::runtime_error);
  EXPECT_THROW(fast_.launch_shape(stream_, dim3(1), dim3(1025)), std::runtime_error);
  EXPECT_THROW(fast_.launch_shape(stream_, dim3(1), dim3(32, 33)), std::runtime_error);
  EXPECT_THROW(fast_.launch_shape(stream_, dim3(1, 65536), dim3(32)), std::runtime_error);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
}

INSTANTIATE_TEST_SUITE_P(Orders, Kernel, testing::Values(Order::kForward, Order::kBackward), order_name);

}  // namespace
}  // namespace standin
