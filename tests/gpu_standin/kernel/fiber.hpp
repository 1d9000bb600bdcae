#pragma once

#include <cstddef>

// A stack of its own for each thread of a block that has to wait for others.

namespace standin {

struct Fiber {
  void* context = nullptr;  // where it stands while another runs
  std::byte* stack = nullptr;
};

constexpr std::size_t kFiberStackBytes = std::size_t{128} << 10;

// A fiber that begins, when first switched to, with a call of `begin`, which must not return.
Fiber* make_fiber(void (*begin)());

// Leaves `from` where it stands, and goes on where `to` was left.
void switch_fiber(Fiber& from, Fiber& to);

}  // namespace standin
