#pragma once

#include <string>
#include <utility>

#include "kernel/launch_kernel.hpp"

namespace standin {

// Runs all blocks of a kernel, one after the other; in each, one thread at a time.
void run_kernel(const KernelLaunch& launch);

// Where threadIdx and the like lie: first byte, and number of bytes.
std::pair<const std::byte*, std::size_t> launch_variables();

// "thread (3,0,0)", by its number in the block; "block (1,0,0)", by its number in the grid.
std::string describe_thread(unsigned thread);
std::string describe_block(const dim3& grid, std::uint64_t block);

}  // namespace standin
