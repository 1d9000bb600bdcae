#include "runtime/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <utility>

#include "runtime/faults.hpp"
#include "standin.hpp"

namespace standin {
namespace {

constexpr std::size_t kDeviceBytes = std::size_t{8} << 30;
constexpr int kPoison = 0xFF;  // as floats: NaNs
constexpr int kCanary = 0xC5;

struct Memory {
  std::byte* region = nullptr;
  std::size_t next_page = 1;
  std::size_t used = 0;
  LazyBytes pages;  // for each page of the region: 1 + the allocation's index, or 0
  std::vector<std::unique_ptr<Allocation>> device;
  std::vector<Allocation*> live;  // on the device
  std::map<std::uintptr_t, std::unique_ptr<Allocation>> pinned;
  bool is_open = false;
};

// Never destroyed: objects of static duration free memory while the program ends. The caller owns it for
// ever.
Memory& memory() {
  static Memory* const only = new Memory;
  return *only;
}

void reserve_region() {
  void* region = mmap(nullptr, kRegionBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) {
    violation("cannot reserve addresses for device memory");
  }
  memory().region = static_cast<std::byte*>(region);
  memory().pages = LazyBytes(kRegionBytes / kPageSize * sizeof(std::uint32_t));
  catch_faults();
}

std::size_t pages_of(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + kPageSize - 1) / kPageSize);
}

void protect(const Allocation& allocation, int protection) {
  if (mprotect(allocation.base, pages_of(allocation.size) * kPageSize, protection) != 0) {
    violation("cannot change the protection of device memory");
  }
}

}  // namespace

std::byte* region() {
  return memory().region;
}

Allocation* device_allocation(const void* address) {
  const auto offset = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(address) -
                                               reinterpret_cast<std::uintptr_t>(region()));
  if (region() == nullptr || offset >= kRegionBytes) {
    return nullptr;
  }
  const std::uint32_t index = memory().pages.as<std::uint32_t>()[offset / kPageSize];
  return index == 0 ? nullptr : memory().device[index - 1].get();
}

Allocation* pinned_allocation(const void* address) {
  auto after = memory().pinned.upper_bound(reinterpret_cast<std::uintptr_t>(address));
  if (after == memory().pinned.begin()) {
    return nullptr;
  }
  Allocation* allocation = std::prev(after)->second.get();
  return static_cast<const std::byte*>(address) < allocation->base + allocation->size ? allocation : nullptr;
}

Allocation* allocation_of(const void* first, std::size_t bytes) {
  Allocation* allocation = device_allocation(first);
  if (allocation == nullptr) {
    allocation = pinned_allocation(first);
  }
  if (allocation == nullptr || !allocation->is_live) {
    return nullptr;
  }
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(first) - allocation->base);
  return offset <= allocation->size && bytes <= allocation->size - offset ? allocation : nullptr;
}

bool is_device_memory(const void* first, std::size_t bytes) {
  const Allocation* allocation = allocation_of(first, bytes);
  return allocation != nullptr && !allocation->is_pinned;
}

Allocation* allocate_device(std::size_t bytes) {
  if (region() == nullptr) {
    reserve_region();
  }
  const std::size_t pages = pages_of(bytes);
  if (bytes > free_device_bytes() || memory().next_page + pages + 1 > kRegionBytes / kPageSize) {
    return nullptr;
  }
  auto allocation = std::make_unique<Allocation>();
  allocation->base = region() + memory().next_page * kPageSize;
  allocation->size = bytes;
  allocation->tracked.base = allocation->base;
  allocation->tracked.size = bytes;
  memory().device.push_back(std::move(allocation));
  Allocation& made = *memory().device.back();
  auto* index = memory().pages.as<std::uint32_t>() + memory().next_page;
  std::fill_n(index, pages, static_cast<std::uint32_t>(memory().device.size()));
  memory().next_page += pages + 1;  // the page left out stays without access
  memory().used += bytes;
  memory().live.push_back(&made);
  protect(made, PROT_READ | PROT_WRITE);
  std::memset(made.base, kPoison, bytes);
  std::memset(made.base + bytes, kCanary, pages * kPageSize - bytes);
  if (!memory().is_open) {
    protect(made, PROT_NONE);
  }
  object_made("device memory", made.base);
  return &made;
}

void free_device(Allocation& allocation) {
  object_gone("device memory", allocation.base);
  protect(allocation, PROT_NONE);
  madvise(allocation.base, pages_of(allocation.size) * kPageSize, MADV_DONTNEED);
  allocation.is_live = false;
  allocation.tracked = TrackedBytes{};
  allocation.accesses = {};
  memory().used -= allocation.size;
  std::erase(memory().live, &allocation);
}

Allocation* allocate_pinned(std::size_t bytes) {
  auto* base = static_cast<std::byte*>(std::aligned_alloc(kPageSize, pages_of(bytes) * kPageSize));
  if (base == nullptr) {
    return nullptr;
  }
  std::memset(base, kPoison, bytes);
  auto allocation = std::make_unique<Allocation>();
  allocation->base = base;
  allocation->size = bytes;
  allocation->is_pinned = true;
  Allocation* made = allocation.get();
  memory().pinned[reinterpret_cast<std::uintptr_t>(base)] = std::move(allocation);
  object_made("pinned memory", base);
  return made;
}

void free_pinned(Allocation& allocation) {
  std::byte* base = allocation.base;
  object_gone("pinned memory", base);
  memory().pinned.erase(reinterpret_cast<std::uintptr_t>(base));
  std::free(base);
}

std::size_t device_bytes() {
  return kDeviceBytes;
}

std::size_t free_device_bytes() {
  return kDeviceBytes - memory().used;
}

void for_each_allocation(const std::function<void(Allocation&)>& visit) {
  std::ranges::for_each(memory().live, [&](Allocation* allocation) { visit(*allocation); });
  std::ranges::for_each(memory().pinned, [&](auto& entry) { visit(*entry.second); });
}

OpenDeviceMemory::OpenDeviceMemory() : opened_(!memory().is_open) {
  if (opened_) {
    memory().is_open = true;
    std::ranges::for_each(memory().live, [](Allocation* each) { protect(*each, PROT_READ | PROT_WRITE); });
  }
}

OpenDeviceMemory::~OpenDeviceMemory() {
  if (opened_) {
    memory().is_open = false;
    std::ranges::for_each(memory().live, [](Allocation* each) { protect(*each, PROT_NONE); });
  }
}

void check_slack(const std::string& what) {
  for (const Allocation* each : memory().live) {
    const std::byte* end = each->base + pages_of(each->size) * kPageSize;
    const std::byte* changed = std::find_if(each->base + each->size, const_cast<std::byte*>(end),
                                            [](std::byte b) { return b != std::byte{kCanary}; });
    if (changed != end) {
      violation("'" + what + "' wrote " + describe_address(changed));
    }
  }
}

void mark_written(const void* first, std::size_t bytes) {
  Allocation* allocation = device_allocation(first);
  if (allocation == nullptr || bytes == 0) {
    return;
  }
  TrackedBytes& tracked = allocation->tracked;
  if (!tracked.written) {
    tracked.written = LazyBytes(allocation->size);
  }
  std::memset(tracked.written.as<char>() + (static_cast<const std::byte*>(first) - allocation->base), 1,
              bytes);
}

std::string describe_address(const void* address) {
  std::ostringstream text;
  const Allocation* allocation = device_allocation(address);
  if (allocation == nullptr) {
    // A byte behind the last page still belongs to the allocation, for whoever reads the message.
    allocation = device_allocation(static_cast<const std::byte*>(address) - kPageSize);
  }
  if (allocation == nullptr) {
    text << "outside all allocations";
    return text.str();
  }
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - allocation->base);
  text << "at offset " << offset << " of " << (allocation->is_live ? "an" : "a freed") << " allocation of "
       << allocation->size << " bytes" << (offset >= allocation->size ? ", beyond its end" : "");
  return text.str();
}

}  // namespace standin
