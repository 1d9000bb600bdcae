#include "libraries/arguments.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

namespace standin::libraries {
namespace {

std::set<cudaStream_t>& undecided_streams() {
  static std::set<cudaStream_t> streams;
  return streams;
}

std::uintptr_t address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

bool overlap(const Range& a, const Range& b) {
  return address(a.first) < address(b.first) + b.bytes && address(b.first) < address(a.first) + a.bytes;
}

}  // namespace

void Arguments::require_device_memory(const char* name, const void* first, std::size_t bytes,
                                      std::size_t alignment) const {
  const std::string what = std::string(call_) + ": " + name;
  if (address(first) % alignment != 0) {
    violation(what + " is not aligned to " + std::to_string(alignment) + " bytes");
  }
  if (!is_device_memory(first, bytes)) {
    violation(what + " is not " + std::to_string(bytes) + " bytes of device memory");
  }
}

void Arguments::reads(const char* name, const void* first, std::size_t bytes, std::size_t alignment) {
  require_device_memory(name, first, bytes, alignment);
  arguments_.push_back({name, {first, bytes, false}});
}

void Arguments::writes(const char* name, void* first, std::size_t bytes, std::size_t alignment,
                       const char* in_place) {
  require_device_memory(name, first, bytes, alignment);
  arguments_.push_back({name, {first, bytes, true}});
  if (in_place != nullptr) {
    in_place_.emplace_back(name, in_place);
  }
}

void Arguments::require_apart() const {
  const auto is_in_place = [&](const Argument& a, const Argument& b) {
    const std::pair names(a.name, b.name);
    return a.range.first == b.range.first && a.range.bytes == b.range.bytes &&
           std::find(in_place_.begin(), in_place_.end(), names) != in_place_.end();
  };
  for (const Argument& a : arguments_) {
    for (const Argument& b : arguments_) {
      const bool is_other = a.name != b.name;
      if (is_other && a.range.is_written && overlap(a.range, b.range) && !is_in_place(a, b) &&
          !is_in_place(b, a)) {
        violation(std::string(call_) + ": " + a.name + ", which is written, overlaps " + b.name);
      }
    }
  }
}

void Arguments::enqueue(cudaStream_t stream, std::function<void()> work) {
  require_apart();
  if (undecided_streams().contains(stream)) {
    violation(std::string(call_) + " on a stream where an NCCL operation is still in progress");
  }
  std::vector<Range> ranges;
  for (const Argument& argument : arguments_) {
    ranges.push_back(argument.range);
  }
  standin::enqueue(stream, call_, std::move(ranges), std::move(work));
}

void mark_undecided(cudaStream_t stream) {
  undecided_streams().insert(stream);
}

void mark_decided(cudaStream_t stream) {
  undecided_streams().erase(stream);
}

}  // namespace standin::libraries
