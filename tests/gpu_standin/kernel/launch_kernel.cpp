#include "kernel/launch_kernel.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "kernel/kernel_name.hpp"
#include "kernel/runner.hpp"
#include "runtime/capture.hpp"
#include "runtime/memory.hpp"
#include "runtime/result.hpp"
#include "runtime/work.hpp"

namespace standin {
namespace {

bool is_within(const dim3& value, unsigned x, unsigned y, unsigned z) {
  return value.x >= 1 && value.y >= 1 && value.z >= 1 && value.x <= x && value.y <= y && value.z <= z;
}

bool is_valid(const KernelLaunch& launch) {
  constexpr unsigned kThreads = 1024;
  constexpr unsigned kDepth = 64;
  constexpr unsigned kWidest = 0x7FFFFFFF;
  constexpr unsigned kBlocks = 65535;
  return is_within(launch.block, kThreads, kThreads, kDepth) &&
         is_within(launch.grid, kWidest, kBlocks, kBlocks) &&
         std::uint64_t{launch.block.x} * launch.block.y * launch.block.z <= kThreads;
}

// Every word of the arguments that is an address of device memory.
std::vector<const void*> device_pointers(const std::vector<std::byte>& arguments) {
  std::vector<const void*> pointers;
  for (std::size_t i = 0; i + sizeof(void*) <= arguments.size(); i += sizeof(void*)) {
    const void* word = nullptr;
    std::memcpy(&word, arguments.data() + i, sizeof(word));
    if (device_allocation(word) != nullptr) {
      pointers.push_back(word);
    }
  }
  return pointers;
}

// A kernel whose accesses are not seen may have written whatever it was given.
void mark_all_written(const std::vector<const void*>& pointers) {
  for (const void* pointer : pointers) {
    const Allocation* allocation = device_allocation(pointer);
    mark_written(allocation->base, allocation->size);
  }
}

}  // namespace

cudaError_t launch_kernel(KernelLaunch launch, cudaStream_t handle) {
  if (must_fail("cudaLaunchKernel")) {
    return finish(cudaErrorUnknown);
  }
  if (device_state() != cudaSuccess || !has_kernel_image()) {
    return finish(device_state() != cudaSuccess ? device_state() : cudaErrorNoKernelImageForDevice);
  }
  if (!is_valid(launch)) {
    return finish(cudaErrorInvalidConfiguration);
  }
  const std::string name = kernel_name(launch.kernel);
  const cudaError_t state = require_valid_capture(stream_of(handle, name));
  if (state != cudaSuccess) {
    return finish(state);
  }
  std::vector<const void*> pointers = device_pointers(launch.arguments);
  auto shared = std::make_shared<const KernelLaunch>(std::move(launch));
  auto work = [shared, pointers] {
    run_kernel(*shared);
    if (!shared->is_checked) {
      mark_all_written(pointers);
    }
  };
  enqueue_piece(handle, {std::make_shared<std::string>(name), {}, std::move(work), std::move(pointers)});
  return cudaSuccess;
}

}  // namespace standin
