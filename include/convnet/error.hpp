#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

namespace convnet {

// The program's exit codes, after BSD's sysexits.h where it has one.
enum class ExitCode : int {
  kOk = 0,
  kUsage = 2,         // a flag or a value of one is wrong
  kData = 65,         // an input is not what it should be, or training met a non-finite number
  kUnavailable = 69,  // a device or a launcher is missing or does not fit
  kInternal = 70,     // a library call failed, or the program is wrong
  kIo = 74,           // reading or writing failed
  kStopped = 75,      // told to stop, and saved: start it again to go on (sysexits' EX_TEMPFAIL)
};

// The one exception of the project. The message names the thing, what was found and what was expected; of a
// failed library call it names the call and the library's own text. main() adds rank and host.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message,
        std::source_location where = std::source_location::current())
      : std::runtime_error(message), code_(code), where_(where) {}

  ExitCode code() const { return code_; }

  // Marks an error that all ranks throw together, so that one message, rank 0's, is enough.
  Error&& on_every_rank() && {
    is_on_every_rank_ = true;
    return std::move(*this);
  }
  bool is_on_every_rank() const { return is_on_every_rank_; }

  // "src/data/idx.cpp:42"
  std::string location() const;

 private:
  ExitCode code_;
  bool is_on_every_rank_ = false;
  std::source_location where_;
};

// An Error from errno after a failed system call: "PATH: cannot CALL: No such file or directory".
Error system_error(const std::string& path, const std::string& call,
                   std::source_location where = std::source_location::current());

}  // namespace convnet
