#include "kernel/fiber.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>

#include "runtime/faults.hpp"
#include "standin.hpp"

#ifdef __x86_64__
// Saves what a call must keep on the old stack, and takes it from the new one.
asm(R"(
.text
.p2align 4
.type standin_switch_context, @function
standin_switch_context:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size standin_switch_context, . - standin_switch_context
)");

extern "C" void standin_switch_context(void** save, void* load) __attribute__((visibility("hidden")));
#endif

namespace standin {
namespace {

constexpr std::size_t kGuardBytes = 4096;

std::byte* make_stack() {
  void* memory = mmap(nullptr, kGuardBytes + kFiberStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    violation("no memory left for the stacks of a block's threads");
  }
  add_stack_guard(memory, kGuardBytes);
  return static_cast<std::byte*>(memory) + kGuardBytes;
}

}  // namespace

#ifdef __x86_64__

Fiber* make_fiber(void (*begin)()) {
  constexpr std::size_t kSavedRegisters = 6;
  auto* fiber = new Fiber;  // kept for ever: fibers are pooled
  fiber->stack = make_stack();
  // Stacks that begin at the same offset of a page would drive each other out of the cache.
  constexpr std::size_t kColours = 31;
  constexpr std::size_t kColourBytes = 320;
  static std::size_t number = 0;
  const std::size_t colour = number++ % kColours * kColourBytes;
  auto* top = reinterpret_cast<std::uintptr_t*>(fiber->stack + kFiberStackBytes - colour);
  *--top = 0;  // where a return address would be, so that the stack is aligned as after a call
  *--top = reinterpret_cast<std::uintptr_t>(begin);
  for (std::size_t i = 0; i < kSavedRegisters; ++i) {
    *--top = 0;
  }
  fiber->context = top;
  return fiber;
}

void switch_fiber(Fiber& from, Fiber& to) {
  standin_switch_context(&from.context, to.context);
}

#else

Fiber* make_fiber(void (*begin)()) {
  auto* fiber = new Fiber;  // kept for ever: fibers are pooled
  fiber->stack = make_stack();
  auto* context = new ucontext_t;
  getcontext(context);
  context->uc_stack.ss_sp = fiber->stack;
  context->uc_stack.ss_size = kFiberStackBytes;
  makecontext(context, begin, 0);
  fiber->context = context;
  return fiber;
}

void switch_fiber(Fiber& from, Fiber& to) {
  if (from.context == nullptr) {
    from.context = new ucontext_t;
  }
  swapcontext(static_cast<ucontext_t*>(from.context), static_cast<const ucontext_t*>(to.context));
}

#endif

}  // namespace standin
