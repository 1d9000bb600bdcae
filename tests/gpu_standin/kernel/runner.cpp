#include "kernel/runner.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "kernel/accesses.hpp"
#include "kernel/cooperation.hpp"
#include "kernel/fiber.hpp"
#include "kernel/kernel_name.hpp"
#include "runtime/faults.hpp"
#include "standin.hpp"

// The variables that device_launch_parameters.h declares: side by side, so that accesses to them are quickly
// told.
#define STANDIN_SIDE_BY_SIDE __attribute__((section(".data.standin_launch")))
extern "C" {
STANDIN_SIDE_BY_SIDE uint3 threadIdx = {1, 1, 1};
STANDIN_SIDE_BY_SIDE uint3 blockIdx = {1, 1, 1};
STANDIN_SIDE_BY_SIDE dim3 blockDim = {1, 1, 1};
STANDIN_SIDE_BY_SIDE dim3 gridDim = {1, 1, 1};
STANDIN_SIDE_BY_SIDE int warpSize = 32;
}
#undef STANDIN_SIDE_BY_SIDE

namespace standin {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFF;

enum class State { kFresh, kReady, kAtBarrier, kAtWarp, kEnded };

struct Thread {
  State state = State::kFresh;
  Fiber* fiber = nullptr;
  WarpOperation operation = WarpOperation::kSync;
  unsigned mask = 0;
  std::uint64_t value = 0;
  int source = 0;
  WarpResult result;
};

// Lanes of a warp, as bits.
struct Lanes {
  unsigned present = 0;  // that exist, and have not ended
  unsigned waiting = 0;  // that wait for others of the warp
};

struct Runner {
  const KernelLaunch* launch = nullptr;
  bool is_forward = true;
  std::vector<Thread> threads;
  std::vector<Lanes> warps;
  unsigned current = 0;
  unsigned fresh = 0;  // how many threads have begun
  unsigned ended = 0;
  unsigned at_barrier = 0;
  std::vector<unsigned> ready;  // threads that may go on, from `next_ready` on
  std::size_t next_ready = 0;
  std::vector<Fiber*> free_fibers;
  Fiber home;  // where the block was begun
};

// Never destroyed, as kernels may run while the program ends. The caller owns it for ever.
Runner& runner() {
  static Runner* const only = new Runner;
  return *only;
}

uint3 thread_index(unsigned thread) {
  const dim3& block = runner().launch->block;
  if (block.y == 1 && block.z == 1) {
    return {thread, 0, 0};
  }
  return {thread % block.x, thread / block.x % block.y, thread / block.x / block.y};
}

unsigned in_order(unsigned turn) {
  return runner().is_forward ? turn : static_cast<unsigned>(runner().threads.size()) - 1 - turn;
}

void make_current(unsigned thread) {
  runner().current = thread;
  threadIdx = thread_index(thread);
  set_accessing_thread(thread, runner().threads[thread].fiber->stack);
}

unsigned lane_bit(unsigned thread) {
  return 1U << thread % kWarp;
}

void make_ready(unsigned thread) {
  runner().threads[thread].state = State::kReady;
  runner().ready.push_back(thread);
}

std::string threads_in(State state, const char* doing) {
  const auto& threads = runner().threads;
  const auto first = std::ranges::find(threads, state, &Thread::state);
  if (first == threads.end()) {
    return "";
  }
  return "; " + std::to_string(std::ranges::count(threads, state, &Thread::state)) + " of its threads " +
         doing + ", the first being " + describe_thread(static_cast<unsigned>(first - threads.begin()));
}

[[noreturn]] void complain(const std::string& what) {
  violation(kernel_name(runner().launch->kernel) + ", " + describe_current_block() + ": " + what +
            threads_in(State::kAtBarrier, "wait at __syncthreads") +
            threads_in(State::kAtWarp, "wait for their warp") + threads_in(State::kEnded, "have ended"));
}

void fiber_begin();

// The fiber to go on with: of a thread that may go on, else one for a thread that has not begun, else the one
// that began the block.
Fiber& next_fiber() {
  Runner& r = runner();
  if (r.next_ready < r.ready.size()) {
    const unsigned thread = r.ready[r.next_ready++];
    if (r.next_ready == r.ready.size()) {
      r.ready.clear();
      r.next_ready = 0;
    }
    make_current(thread);
    return *r.threads[thread].fiber;
  }
  if (r.fresh < r.threads.size()) {
    if (r.free_fibers.empty()) {
      return *make_fiber(fiber_begin);
    }
    Fiber* fiber = r.free_fibers.back();
    r.free_fibers.pop_back();
    return *fiber;
  }
  if (r.ended == r.threads.size()) {
    return r.home;
  }
  complain("divergent threads wait for each other for ever");
}

// Runs fresh threads for as long as none that waited can go on.
void run_fresh_threads(Fiber& own) {
  Runner& r = runner();
  const KernelLaunch& launch = *r.launch;
  while (r.fresh < r.threads.size() && r.next_ready == r.ready.size()) {
    const unsigned thread = in_order(r.fresh++);
    r.threads[thread].fiber = &own;
    r.threads[thread].state = State::kReady;
    make_current(thread);
    launch.call(launch.kernel, launch.arguments.data());
    r.threads[thread].state = State::kEnded;
    r.warps[thread / kWarp].present &= ~lane_bit(thread);
    ++r.ended;
  }
}

Fiber* beginning = nullptr;  // the fiber that is switched to for the first time

void fiber_begin() {
  Fiber& own = *beginning;
  for (;;) {
    run_fresh_threads(own);
    runner().free_fibers.push_back(&own);
    Fiber& next = next_fiber();
    if (&next != &own) {
      beginning = &next;
      switch_fiber(own, next);
    }
  }
}

// Lets others run until this thread may go on.
void wait() {
  Fiber& own = *runner().threads[runner().current].fiber;
  Fiber& next = next_fiber();
  if (&next != &own) {
    beginning = &next;
    switch_fiber(own, next);
  }
}

void run_block() {
  Runner& r = runner();
  std::ranges::fill(r.threads, Thread{});
  for (std::size_t warp = 0; warp < r.warps.size(); ++warp) {
    const std::size_t lanes = std::min<std::size_t>(kWarp, r.threads.size() - warp * kWarp);
    r.warps[warp] = {lanes == kWarp ? kAllLanes : (1U << lanes) - 1, 0};
  }
  r.fresh = r.ended = r.at_barrier = 0;
  Fiber& first = next_fiber();
  beginning = &first;
  switch_fiber(r.home, first);
}

unsigned warp_begin(unsigned thread) {
  return thread / kWarp * kWarp;
}

// Whether all lanes that the thread's mask names have come; complains if one cannot.
bool has_met(unsigned thread) {
  const auto& threads = runner().threads;
  const Lanes& lanes = runner().warps[thread / kWarp];
  const unsigned mask = threads[thread].mask;
  if (const unsigned gone = mask & ~lanes.present; gone != 0) {
    complain("the mask of a warp operation of " + describe_thread(thread) + " names lane " +
             std::to_string(std::countr_zero(gone)) + ", which has ended or does not exist");
  }
  if ((mask & ~lanes.waiting) != 0) {
    return false;
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const Thread& other = threads[(mask >> lane & 1U) != 0 ? warp_begin(thread) + lane : thread];
    if (other.mask != mask) {
      return false;
    }
    if (other.operation != threads[thread].operation) {
      complain("lanes of a warp meet at different operations: " + describe_thread(thread) + " and " +
               describe_thread(warp_begin(thread) + lane));
    }
  }
  return true;
}

WarpResult result_of(unsigned thread, unsigned ballot) {
  const auto& threads = runner().threads;
  const Thread& own = threads[thread];
  const auto source = static_cast<unsigned>(own.source);
  if (own.operation != WarpOperation::kShuffle || source >= kWarp || source == thread % kWarp) {
    return {own.value, ballot};
  }
  if ((own.mask >> source & 1U) == 0) {
    complain("a shuffle of " + describe_thread(thread) + " reads lane " + std::to_string(source) +
             ", which its mask does not name");
  }
  return {threads[warp_begin(thread) + source].value, ballot};
}

void finish_meeting(unsigned thread) {
  auto& threads = runner().threads;
  const unsigned mask = threads[thread].mask;
  const unsigned begin = warp_begin(thread);
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1U) != 0 && threads[begin + lane].value != 0) {
      ballot |= 1U << lane;
    }
  }
  runner().warps[begin / kWarp].waiting &= ~mask;
  warp_synchronised(begin / kWarp);
  for (unsigned turn = 0; turn < kWarp; ++turn) {
    const unsigned lane = runner().is_forward ? turn : kWarp - 1 - turn;
    if ((mask >> lane & 1U) != 0) {
      threads[begin + lane].result = result_of(begin + lane, ballot);
      make_ready(begin + lane);
    }
  }
}

}  // namespace

std::pair<const std::byte*, std::size_t> launch_variables() {
  const auto address = [](const auto& variable) { return reinterpret_cast<const std::byte*>(&variable); };
  const auto [first, last] =
      std::minmax({address(threadIdx), address(blockIdx), address(blockDim), address(gridDim)});
  return {first, static_cast<std::size_t>(last - first) + sizeof(dim3)};
}

std::string describe_thread(unsigned thread) {
  const uint3 index = thread_index(thread);
  return "thread (" + std::to_string(index.x) + "," + std::to_string(index.y) + "," +
         std::to_string(index.z) + ")";
}

std::string describe_block(const dim3& grid, std::uint64_t block) {
  return "block (" + std::to_string(block % grid.x) + "," + std::to_string(block / grid.x % grid.y) + "," +
         std::to_string(block / grid.x / grid.y) + ")";
}

void barrier() {
  Runner& r = runner();
  r.threads[r.current].state = State::kAtBarrier;
  if (++r.at_barrier == r.threads.size()) {
    r.at_barrier = 0;
    block_synchronised();
    for (unsigned turn = 0; turn < r.threads.size(); ++turn) {
      make_ready(in_order(turn));
    }
  }
  wait();
}

WarpResult meet_warp(WarpOperation operation, unsigned mask, std::uint64_t value, int source) {
  Runner& r = runner();
  const unsigned current = r.current;
  Thread& own = r.threads[current];
  if ((mask & lane_bit(current)) == 0) {
    complain(describe_thread(current) + " takes part in a warp operation whose mask does not name its lane");
  }
  own.operation = operation;
  own.mask = mask;
  own.value = value;
  own.source = source;
  own.state = State::kAtWarp;
  r.warps[current / kWarp].waiting |= lane_bit(current);
  if (has_met(current)) {
    finish_meeting(current);
  }
  wait();
  return own.result;
}

int lane_id() {
  return static_cast<int>(runner().current % kWarp);
}

void run_kernel(const KernelLaunch& launch) {
  Runner& r = runner();
  r.launch = &launch;
  r.is_forward = order() == Order::kForward;
  blockDim = launch.block;
  gridDim = launch.grid;
  r.threads.resize(std::size_t{launch.block.x} * launch.block.y * launch.block.z);
  r.warps.resize((r.threads.size() + kWarp - 1) / kWarp);
  const std::uint64_t blocks = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  begin_kernel(launch);
  for (std::uint64_t turn = 0; turn < blocks; ++turn) {
    const std::uint64_t block = r.is_forward ? turn : blocks - 1 - turn;
    blockIdx = {static_cast<unsigned>(block % launch.grid.x),
                static_cast<unsigned>(block / launch.grid.x % launch.grid.y),
                static_cast<unsigned>(block / launch.grid.x / launch.grid.y)};
    begin_block(block);
    run_block();
  }
  end_kernel();
}

}  // namespace standin
