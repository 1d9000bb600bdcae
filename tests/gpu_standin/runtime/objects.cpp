#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>

#include "standin.hpp"

// The books: which entry points were called, which are to fail or to stall, and which objects live.

namespace standin {
namespace {

struct Books {
  std::map<std::string, long> calls;
  std::map<std::string, std::set<long>> failures;  // entry point -> the calls, counted from 1, that fail
  std::set<std::string> stalled;
  std::map<std::string, std::set<const void*>> objects;
  Order order = Order::kForward;
};

// One write for the whole report, so that several ranks may append to one file.
void write_report() {
  std::ostringstream report;
  for (const auto& [name, count] : calls()) {
    report << "call " << name << ' ' << count << '\n';
  }
  for (const auto& [kind, count] : live_objects()) {
    report << "live " << kind << ' ' << count << '\n';
  }
  const std::string text = report.str();
  const int file =
      open(std::getenv("CONVNET_STANDIN_REPORT"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    std::perror("gpu stand-in: CONVNET_STANDIN_REPORT");
  }
  if (file >= 0) {
    close(file);
  }
}

// Never destroyed: objects may be counted while the program ends. The caller owns it for ever.
Books* open_books() {
  auto* books = new Books;
  if (const char* text = std::getenv("CONVNET_STANDIN_FAIL")) {
    const std::string failure = text;
    const auto colon = failure.find(':');
    const long nth = colon == std::string::npos ? 1 : std::atol(failure.c_str() + colon + 1);
    books->failures[failure.substr(0, colon)].insert(nth);
  }
  if (const char* text = std::getenv("CONVNET_STANDIN_STALL")) {
    books->stalled.insert(text);
  }
  if (const char* text = std::getenv("CONVNET_STANDIN_ORDER")) {
    books->order = std::string(text) == "backward" ? Order::kBackward : Order::kForward;
  }
  if (std::getenv("CONVNET_STANDIN_REPORT") != nullptr) {
    std::atexit(write_report);
  }
  return books;
}

Books& books() {
  static Books* const only = open_books();
  return *only;
}

std::string describe(const char* kind, const void* object) {
  std::ostringstream text;
  text << kind << ' ' << object;
  return text.str();
}

}  // namespace

void violation(const std::string& text) {
  std::fflush(stdout);
  const std::string line = "gpu stand-in: " + text + "\n";
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  std::abort();
}

bool must_fail(const char* call) {
  const long number = ++books().calls[call];
  const auto failures = books().failures.find(call);
  return failures != books().failures.end() && failures->second.erase(number) > 0;
}

const std::map<std::string, long>& calls() {
  return books().calls;
}

void fail(const std::string& call, long nth) {
  const auto counted = books().calls.find(call);
  const long so_far = counted == books().calls.end() ? 0 : counted->second;
  books().failures[call].insert(so_far + nth);
}

void stall(const std::string& call) {
  books().stalled.insert(call);
}

void end_stall(const std::string& call) {
  books().stalled.erase(call);
}

bool is_stalled(const char* call) {
  return !books().stalled.empty() && books().stalled.contains(call);
}

void set_order(Order order) {
  books().order = order;
}

Order order() {
  return books().order;
}

void object_made(const char* kind, const void* object) {
  if (!books().objects[kind].insert(object).second) {
    violation(describe(kind, object) + " is made a second time");
  }
}

void object_gone(const char* kind, const void* object) {
  if (books().objects[kind].erase(object) == 0) {
    violation(describe(kind, object) + " is destroyed, but does not live");
  }
}

void require_object(const char* kind, const void* object, const char* call) {
  const auto living = books().objects.find(kind);
  if (living == books().objects.end() || !living->second.contains(object)) {
    violation(std::string(call) + ": " + describe(kind, object) + " does not live");
  }
}

std::map<std::string, long> live_objects() {
  std::map<std::string, long> counts;
  for (const auto& [kind, objects] : books().objects) {
    if (!objects.empty()) {
      counts[kind] = static_cast<long>(objects.size());
    }
  }
  return counts;
}

}  // namespace standin
