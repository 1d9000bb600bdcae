#include "runtime/faults.hpp"

#include <csignal>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/memory.hpp"
#include "standin.hpp"

namespace standin {
namespace {

struct Guard {
  std::uintptr_t first = 0;
  std::size_t bytes = 0;
};

const std::string* working = nullptr;

std::vector<Guard>& guards() {
  static std::vector<Guard>* const only = new std::vector<Guard>;
  return *only;
}

bool is_stack_guard(const void* address) {
  for (const Guard& guard : guards()) {
    if (reinterpret_cast<std::uintptr_t>(address) - guard.first < guard.bytes) {
      return true;
    }
  }
  return false;
}

// Not what a signal handler may do in general; but the fault comes from a plain access, in no library's
// middle.
void on_fault(int signal, siginfo_t* information, void*) {
  const void* address = information->si_addr;
  const auto offset = reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(region());
  if (offset < kRegionBytes) {
    violation(working == nullptr ? "host code touches device memory, " + describe_address(address)
                                 : "'" + *working + "' touches memory " + describe_address(address));
  }
  if (is_stack_guard(address)) {
    violation("'" + (working == nullptr ? std::string("a kernel") : *working) + "' needs too much stack");
  }
  std::signal(signal, SIG_DFL);  // the access is tried again, and ends the program as it would have
}

}  // namespace

void catch_faults() {
  constexpr std::size_t kStackBytes = std::size_t{1} << 16;
  static std::vector<char>* const stack = new std::vector<char>(kStackBytes);
  stack_t alternative{};
  alternative.ss_sp = stack->data();
  alternative.ss_size = stack->size();
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
}

Working::Working(const std::string& what) : outer_(working) {
  working = &what;
}

Working::~Working() {
  working = outer_;
}

void add_stack_guard(const void* first, std::size_t bytes) {
  guards().push_back({reinterpret_cast<std::uintptr_t>(first), bytes});
}

}  // namespace standin
