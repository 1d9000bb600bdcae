#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/ordering.hpp"
#include "runtime/tracked_bytes.hpp"

// The memory of the device, which the host cannot touch, and pinned memory of the host.

namespace standin {

struct Allocation {
  std::byte* base = nullptr;
  std::size_t size = 0;
  bool is_pinned = false;
  bool is_live = true;
  TrackedBytes tracked;          // what kernels did with each byte
  std::vector<Access> accesses;  // what work did with it that later work may collide with
};

constexpr std::size_t kPageSize = 4096;
// Addresses only: what is never touched takes no memory, and no address is ever used twice.
constexpr std::size_t kRegionBytes = std::size_t{1} << 38;

// The region that device memory comes from. Null before the first allocation.
std::byte* region();

// The device allocation, live or freed, in whose pages the address lies; else null.
Allocation* device_allocation(const void* address);
// The live allocation of pinned memory that holds the address; else null.
Allocation* pinned_allocation(const void* address);
// The live allocation of either kind that holds all the bytes; else null.
Allocation* allocation_of(const void* first, std::size_t bytes);

// Null if the device's memory does not suffice.
Allocation* allocate_device(std::size_t bytes);
void free_device(Allocation& allocation);
Allocation* allocate_pinned(std::size_t bytes);
void free_pinned(Allocation& allocation);

std::size_t device_bytes();
std::size_t free_device_bytes();

void for_each_allocation(const std::function<void(Allocation&)>& visit);

// The host touches no device memory except while this lives.
class OpenDeviceMemory {
 public:
  OpenDeviceMemory();
  ~OpenDeviceMemory();
  OpenDeviceMemory(const OpenDeviceMemory&) = delete;
  OpenDeviceMemory& operator=(const OpenDeviceMemory&) = delete;

 private:
  bool opened_;
};

// A violation if anything was written between the end of an allocation and the end of its last page.
void check_slack(const std::string& what);

// Writes what the host wrote through a copy or a fill; kernels of the checked variant may read it now.
void mark_written(const void* first, std::size_t bytes);

// Says where an address lies, for messages.
std::string describe_address(const void* address);

}  // namespace standin
