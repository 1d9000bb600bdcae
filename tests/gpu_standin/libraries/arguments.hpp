#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "standin.hpp"

// The device memory that a library's call works on, with all that the real library would not notice, or only
// as an illegal address, made a violation.
namespace standin::libraries {

class Arguments {
 public:
  explicit Arguments(const char* call) : call_(call) {}

  // Device memory that is read. It must be aligned to `alignment` bytes.
  void reads(const char* name, const void* first, std::size_t bytes, std::size_t alignment);

  // Device memory that is written, and read too where the call says so. It must not overlap any other, except
  // the one named `in_place`, with which it may be one and the same.
  void writes(const char* name, void* first, std::size_t bytes, std::size_t alignment,
              const char* in_place = nullptr);

  // Queues the work on the stream.
  void enqueue(cudaStream_t stream, std::function<void()> work);

 private:
  struct Argument {
    std::string name;
    Range range;
  };

  void require_device_memory(const char* name, const void* first, std::size_t bytes,
                             std::size_t alignment) const;
  void require_apart() const;

  const char* call_;
  std::vector<Argument> arguments_;
  std::vector<std::pair<std::string, std::string>> in_place_;
};

// While NCCL has not yet put an operation on a stream, what is queued there comes before it instead of after:
// these mark such a stream, on which any library's work is a violation.
void mark_undecided(cudaStream_t stream);
void mark_decided(cudaStream_t stream);

}  // namespace standin::libraries
