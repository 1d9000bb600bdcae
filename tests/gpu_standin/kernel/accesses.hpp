#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernel/launch_kernel.hpp"

// The check of each memory access of kernels that were compiled for it: -fsanitize=thread makes the compiler
// call
// __tsan_read4 and the like, and these are defined here.

namespace standin {

// What the runner tells the check.
void begin_kernel(const KernelLaunch& launch);
void begin_block(std::uint64_t block);
void end_kernel();
void set_accessing_thread(unsigned thread, const std::byte* stack);
void block_synchronised();
void warp_synchronised(unsigned warp);

std::string describe_current_block();

}  // namespace standin
