#pragma once

#include <string>

// Turns a touch of memory that the device does not give into a violation that says what happened.

namespace standin {

// From now on, a fault in device memory, or at the end of a kernel's stack, is a violation. Others stay what
// they are.
void catch_faults();

// What is being done while it lives: a piece of queued work.
class Working {
 public:
  explicit Working(const std::string& what);
  ~Working();
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  const std::string* outer_;
};

// Memory behind a stack: touched, the stack was too small.
void add_stack_guard(const void* first, std::size_t bytes);

}  // namespace standin
