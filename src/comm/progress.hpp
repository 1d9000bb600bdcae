#pragma once

#include <cstdint>
#include <mutex>

namespace convnet {

// Where this rank's main thread is. That thread writes it, and the watchdog's thread reads it. Names of
// phases and calls are literals: they are kept as pointers.
class Progress {
 public:
  struct Mark {
    std::int64_t step = 0;       // in the run, from 1; 0: before the first
    const char* phase = "";      // "training", "evaluating", ...
    const char* call = nullptr;  // the library call that it is in, "MPI_Allreduce"; nullptr: in none
    std::uint64_t changes = 0;   // how often any of this has been set: unchanged, there was no progress
  };

  // While it lives, the main thread is in a library call. Calls within a call end where they began.
  class Call {
   public:
    Call(Progress& progress, const char* name) : progress_(progress), outer_(progress.set_call(name)) {}
    ~Call() { progress_.set_call(outer_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Progress& progress_;
    const char* outer_;
  };

  void enter_step(std::int64_t step);
  void enter_phase(const char* phase);

  Mark snapshot() const;

 private:
  const char* set_call(const char* name);  // returns the one before

  mutable std::mutex mutex_;
  Mark mark_{.phase = "starting"};
};

}  // namespace convnet
