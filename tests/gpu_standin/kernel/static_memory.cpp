#include "kernel/static_memory.hpp"

#include <link.h>

#include <map>

namespace standin {
namespace {

using Segments = std::map<std::uintptr_t, Segment>;  // by first address

int add_segments(dl_phdr_info* library, std::size_t, void* data) {
  auto& segments = *static_cast<Segments*>(data);
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = library->dlpi_phdr[i];
    const std::uintptr_t first = library->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && !segments.contains(first)) {
      Segment& segment = segments[first];
      segment.tracked.base = reinterpret_cast<const std::byte*>(first);
      segment.tracked.size = header.p_memsz;
      segment.shared_begin = header.p_filesz;
      segment.is_writable = (header.p_flags & PF_W) != 0;
    }
  }
  return 0;
}

Segment* find(Segments& segments, const void* address) {
  const auto after = segments.upper_bound(reinterpret_cast<std::uintptr_t>(address));
  if (after == segments.begin()) {
    return nullptr;
  }
  Segment& segment = std::prev(after)->second;
  return static_cast<const std::byte*>(address) < segment.tracked.base + segment.tracked.size ? &segment
                                                                                              : nullptr;
}

}  // namespace

Segment* static_memory(const void* address) {
  static Segments* const segments = new Segments;  // never destroyed, as kernels may still run
  Segment* found = find(*segments, address);
  if (found == nullptr) {
    dl_iterate_phdr(add_segments, segments);  // a library may have been loaded since
    found = find(*segments, address);
  }
  return found;
}

}  // namespace standin
