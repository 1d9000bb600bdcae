#include "kernel/accesses.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "kernel/cooperation.hpp"
#include "kernel/fiber.hpp"
#include "kernel/kernel_name.hpp"
#include "kernel/race.hpp"
#include "kernel/runner.hpp"
#include "kernel/static_memory.hpp"
#include "runtime/memory.hpp"
#include "runtime/work.hpp"

namespace standin {
namespace {

// The way of each access, whose size and kind are known where it begins.
#define STANDIN_INLINE [[gnu::always_inline]] inline

enum class Kind { kRead, kWrite, kAtomic };

constexpr unsigned kWarp = 32;
constexpr unsigned kWarps = 32;

struct Checker {
  const KernelLaunch* launch = nullptr;  // null: no kernel runs whose accesses are seen
  const std::byte* stack = nullptr;      // of the running thread
  const std::byte* region = nullptr;
  Allocation* recent = nullptr;                 // the allocation accessed last
  Allocation* recent_other = nullptr;           // and the one before
  const std::byte* launch_variables = nullptr;  // threadIdx and the like
  std::size_t launch_variable_bytes = 0;
  Segment* recent_segment = nullptr;
  std::uint32_t epoch = 1;
  Era era;
  unsigned thread = 0;
  std::uint64_t block = 0;
  std::uint64_t kernels = 0;
  std::array<unsigned, kWarps> meetings{};
  std::vector<std::pair<std::uint32_t, std::uint64_t>> blocks;  // first epoch, number
  std::vector<Allocation*> touched;
  std::vector<const Allocation*> given;  // that arguments, or pointers in device memory, point to
};

Checker checker;
const KernelLaunch* running = nullptr;  // checked or not

std::string who() {
  return kernel_name(running->kernel) + ", " + describe_current_block() + ", " +
         describe_thread(checker.thread);
}

[[noreturn, gnu::cold, gnu::noinline]] void complain(const void* address, std::size_t bytes, Kind kind,
                                                     const std::string& why) {
  violation(who() + (kind == Kind::kRead ? " reads " : " writes ") + std::to_string(bytes) + " bytes " + why +
            (device_allocation(address) != nullptr ? " " + describe_address(address) : ""));
}

std::string block_of(Mark mark) {
  const auto after = std::ranges::upper_bound(checker.blocks, epoch_of(mark), {},
                                              &std::pair<std::uint32_t, std::uint64_t>::first);
  return describe_block(running->grid, std::prev(after)->second);
}

[[noreturn, gnu::cold, gnu::noinline]] void complain_of_race(const TrackedBytes& memory, std::size_t offset,
                                                             Mark other, Race race) {
  std::string others = describe_thread(thread_of(other));
  std::string why = "with no barrier between them";
  if (race == Race::kBetweenBlocks) {
    others = epoch_of(other) < checker.era.block_begin ? block_of(other) + ", " + others : "another block";
    why = "not both by atomic operations";
  }
  const std::byte* address = memory.base + offset;
  violation(who() + " races with " + others + ": they touch the same bytes, one of them writing, " + why +
            " (" + (device_allocation(address) != nullptr ? describe_address(address) : "shared memory") +
            ")");
}

STANDIN_INLINE void check_cell(TrackedBytes& memory, std::size_t offset, Cell& cell, Kind kind,
                               bool is_device_memory) {
  const Era& era = checker.era;
  const bool are_atomic = kind == Kind::kAtomic && (cell.write & kAtomic) != 0;
  if (!are_atomic) {
    if (const Race race = race_with(cell.write, era, is_device_memory); race != Race::kNone) {
      complain_of_race(memory, offset, cell.write, race);
    }
  }
  if (kind == Kind::kRead) {
    cell.read = merged(cell.read, era);
    return;
  }
  if (const Race race = race_with(cell.read, era, is_device_memory); race != Race::kNone) {
    complain_of_race(memory, offset, cell.read, race);
  }
  cell.write =
      are_atomic ? merged(cell.write, era) | kAtomic : era.now | (kind == Kind::kAtomic ? kAtomic : 0);
}

// The greatest power of 2, up to 4, that the access begins and ends at multiples of.
std::size_t unit_of(std::size_t offset, std::size_t bytes) {
  const std::size_t bits = offset | bytes | 4U;
  return bits & (~bits + 1U);
}

STANDIN_INLINE void check_cells(TrackedBytes& memory, std::size_t offset, std::size_t bytes, Kind kind,
                                bool is_device_memory) {
  if (((offset | bytes) & (memory.unit - 1)) != 0) {
    memory.refine(unit_of(offset, bytes));
  }
  if (!memory.cells) {
    memory.cells = LazyBytes((memory.size / memory.unit + 1) * sizeof(Cell));
  }
  Cell* cells = memory.cells.as<Cell>();
  if (bytes == memory.unit) {
    check_cell(memory, offset, cells[offset / bytes], kind, is_device_memory);
    return;
  }
  for (std::size_t at = offset; at < offset + bytes; at += memory.unit) {
    check_cell(memory, at, cells[at / memory.unit], kind, is_device_memory);
  }
}

void widen(std::size_t& begin, std::size_t& end, std::size_t offset, std::size_t bytes) {
  begin = std::min(begin, offset);
  end = std::max(end, offset + bytes);
}

// An index that is far off may lead into another allocation: only those that the kernel has a pointer to are
// its own.
void remember_pointers(const void* first, std::size_t bytes) {
  for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    const std::byte* word = nullptr;
    std::memcpy(&word, static_cast<const std::byte*>(first) + at, sizeof(word));
    if (static_cast<std::size_t>(word - checker.region) < kRegionBytes) {
      const Allocation* allocation = device_allocation(word);
      if (std::ranges::find(checker.given, allocation) == checker.given.end()) {
        checker.given.push_back(allocation);
      }
    }
  }
}

STANDIN_INLINE void note_bounds(Allocation& allocation, std::size_t offset, std::size_t bytes, Kind kind) {
  TrackedBytes& memory = allocation.tracked;
  if (memory.kernel != checker.kernels) {
    memory.kernel = checker.kernels;
    memory.read_begin = memory.write_begin = memory.size;
    memory.read_end = memory.write_end = 0;
    checker.touched.push_back(&allocation);
    if (std::ranges::find(checker.given, &allocation) == checker.given.end()) {
      complain(memory.base + offset, bytes, kind, "of memory that it has no pointer to,");
    }
  }
  if (kind == Kind::kRead) {
    widen(memory.read_begin, memory.read_end, offset, bytes);
  } else {
    widen(memory.write_begin, memory.write_end, offset, bytes);
  }
}

// Written out for each size, as this is done for each access.
STANDIN_INLINE bool are_all_written(const char* written, std::size_t bytes) {
  constexpr std::uint64_t kOnes = 0x0101010101010101U;
  std::uint64_t flags = kOnes;
  if (bytes > sizeof(flags)) {
    return std::memchr(written, 0, bytes) == nullptr;
  }
  std::memcpy(&flags, written, bytes);
  return flags == kOnes;
}

STANDIN_INLINE void check_written(TrackedBytes& memory, std::size_t offset, std::size_t bytes, Kind kind) {
  if (!memory.written) {
    memory.written = LazyBytes(memory.size);
  }
  char* written = memory.written.as<char>() + offset;
  if (kind != Kind::kWrite && !are_all_written(written, bytes)) {
    complain(memory.base + offset, bytes, Kind::kRead, "that were never written,");
  }
  if (kind != Kind::kRead) {
    std::memset(written, 1, bytes);
  }
}

STANDIN_INLINE void check_device_access(const void* address, std::size_t bytes, Kind kind) {
  Allocation* allocation = checker.recent;
  if (static_cast<std::size_t>(static_cast<const std::byte*>(address) - allocation->base) >=
      allocation->size) {
    std::swap(checker.recent, checker.recent_other);
    allocation = checker.recent;
  }
  auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - allocation->base);
  if (offset >= allocation->size) {
    allocation = device_allocation(address);
    if (allocation == nullptr) {
      complain(address, bytes, kind, "of device memory " + describe_address(address));
    }
    offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - allocation->base);
    if (!allocation->is_live || offset >= allocation->size) {
      complain(address, bytes, kind, "");
    }
    checker.recent = allocation;
  }
  if (bytes > allocation->size - offset) {
    complain(address, bytes, kind, "that go beyond the end,");
  }
  note_bounds(*allocation, offset, bytes, kind);
  check_written(allocation->tracked, offset, bytes, kind);
  if (kind == Kind::kRead && bytes >= sizeof(void*) && offset % sizeof(void*) == 0) {
    remember_pointers(address, bytes);
  }
  check_cells(allocation->tracked, offset, bytes, kind, true);
}

bool is_argument(const void* address) {
  const auto& arguments = checker.launch->arguments;
  return static_cast<std::size_t>(static_cast<const std::byte*>(address) - arguments.data()) <
         arguments.size();
}

// A unit of shared memory that this block has not written holds what an earlier block left.
void check_shared_read(const Segment& segment, std::size_t offset, std::size_t bytes) {
  const TrackedBytes& memory = segment.tracked;
  for (std::size_t at = offset; at < offset + bytes && memory.cells; at += memory.unit) {
    if (epoch_of(memory.cells.as<Cell>()[at / memory.unit].write) < checker.era.block_begin) {
      complain(memory.base + at, bytes, Kind::kRead, "of shared memory that its block has not written");
    }
  }
}

void check_static_access(const void* address, std::size_t bytes, Kind kind) {
  const auto* first = static_cast<const std::byte*>(address);
  if (is_argument(address)) {
    return;
  }
  Segment* segment = checker.recent_segment;
  if (segment == nullptr ||
      static_cast<std::size_t>(first - segment->tracked.base) >= segment->tracked.size) {
    segment = static_memory(address);
    if (segment == nullptr) {
      complain(
          address, bytes, kind,
          pinned_allocation(address) != nullptr ? "of pinned memory of the host" : "of the host's memory");
    }
    checker.recent_segment = segment;
  }
  if (!segment->is_writable) {
    return;
  }
  const auto offset = static_cast<std::size_t>(first - segment->tracked.base);
  check_cells(segment->tracked, offset, bytes, kind, false);
  if (kind == Kind::kRead && offset >= segment->shared_begin) {
    check_shared_read(*segment, offset, bytes);
  }
}

STANDIN_INLINE void check_access(const void* address, std::size_t bytes, Kind kind) {
  if (checker.launch == nullptr || bytes == 0) {
    return;
  }
  const auto* first = static_cast<const std::byte*>(address);
  if (static_cast<std::size_t>(first - checker.stack) < kFiberStackBytes ||
      static_cast<std::size_t>(first - checker.launch_variables) < checker.launch_variable_bytes) {
    return;
  }
  if (static_cast<std::size_t>(first - checker.region) < kRegionBytes) {
    check_device_access(address, bytes, kind);
  } else {
    check_static_access(address, bytes, kind);
  }
}

}  // namespace

void begin_kernel(const KernelLaunch& launch) {
  running = &launch;
  static Allocation none;  // of no bytes, so that the first access looks for its allocation
  checker.launch = launch.is_checked ? &launch : nullptr;
  checker.region = region();
  checker.recent = checker.recent_other = &none;
  std::tie(checker.launch_variables, checker.launch_variable_bytes) = launch_variables();
  ++checker.kernels;
  checker.era.launch_begin = checker.epoch + 1;
  checker.blocks.clear();
  checker.touched.clear();
  checker.given.clear();
  remember_pointers(launch.arguments.data(), launch.arguments.size());
}

void begin_block(std::uint64_t block) {
  checker.block = block;
  checker.era.block_begin = ++checker.epoch;
  checker.meetings.fill(0);
  checker.blocks.emplace_back(checker.epoch, block);
}

void end_kernel() {
  for (const Allocation* allocation : checker.touched) {
    const TrackedBytes& memory = allocation->tracked;
    if (memory.read_begin < memory.read_end) {
      touched({memory.base + memory.read_begin, memory.read_end - memory.read_begin, false});
    }
    if (memory.write_begin < memory.write_end) {
      touched({memory.base + memory.write_begin, memory.write_end - memory.write_begin, true});
    }
  }
  checker.launch = nullptr;
  running = nullptr;
}

void set_accessing_thread(unsigned thread, const std::byte* stack) {
  checker.thread = thread;
  checker.stack = stack;
  checker.era.now = make_mark(checker.epoch, checker.meetings[thread / kWarp], thread);
}

void block_synchronised() {
  ++checker.epoch;
}

void warp_synchronised(unsigned warp) {
  ++checker.meetings[warp];
}

std::string describe_current_block() {
  return describe_block(running->grid, checker.block);
}

void note_atomic(const void* address, unsigned bytes) {
  check_access(address, bytes, Kind::kAtomic);
}

}  // namespace standin

using standin::check_access;
using standin::Kind;

// The names and parameters are the compiler's.
#define STANDIN_ACCESS(bytes)                               \
  void __tsan_read##bytes(const void* address) {            \
    check_access(address, bytes, Kind::kRead);              \
  }                                                         \
  void __tsan_write##bytes(const void* address) {           \
    check_access(address, bytes, Kind::kWrite);             \
  }                                                         \
  void __tsan_unaligned_read##bytes(const void* address) {  \
    check_access(address, bytes, Kind::kRead);              \
  }                                                         \
  void __tsan_unaligned_write##bytes(const void* address) { \
    check_access(address, bytes, Kind::kWrite);             \
  }                                                         \
  void __tsan_volatile_read##bytes(const void* address) {   \
    check_access(address, bytes, Kind::kRead);              \
  }                                                         \
  void __tsan_volatile_write##bytes(const void* address) {  \
    check_access(address, bytes, Kind::kWrite);             \
  }

extern "C" {

STANDIN_ACCESS(1)
STANDIN_ACCESS(2)
STANDIN_ACCESS(4)
STANDIN_ACCESS(8)
STANDIN_ACCESS(16)

void __tsan_read_range(const void* address, std::size_t bytes) {
  check_access(address, bytes, Kind::kRead);
}
void __tsan_write_range(const void* address, std::size_t bytes) {
  check_access(address, bytes, Kind::kWrite);
}
void __tsan_init() {}
void __tsan_func_entry(const void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(const void*) {}
void __tsan_vptr_update(const void*, const void*) {}

}  // extern "C"

#undef STANDIN_ACCESS
#undef STANDIN_INLINE
