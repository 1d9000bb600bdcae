#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/mpi_communicator.hpp"
#include "comm/watch_mail.hpp"

namespace convnet {

// Ends the job, with exit code 69 (kUnavailable) and MPI_Abort, once no rank has made progress for
// `deadline`: no main thread's mark (see Progress) has changed, or rank 0 can no longer be asked. Before that
// every rank that can still speak says on stderr where it is, and rank 0 names the ranks, with hosts, that do
// not answer (killed, stopped, unreachable) and those that are elsewhere than the ones that wait (stuck).
//
// A thread of its own does this on each rank, and only time in which it runs counts: a job that is suspended
// as a whole, or a rank that a debugger stops, does not age. Where MPI does not give MPI_THREAD_MULTIPLE the
// ranks do not talk: each one judges, speaks and ends for itself.
class Watchdog {
 public:
  // Collective. A deadline of 0 makes no thread, and no watchdog.
  //
  // `is_told_to_end`, where given, is asked from the thread: whether somebody else ends the job, as mpirun
  // does within a second when a rank was killed. If rank 0 then waits, and some ranks do not answer, all say
  // where they are, and rank 0 names those that are missing; unless an error, which has been told, ended one.
  Watchdog(const MpiCommunicator& world, std::chrono::seconds deadline,
           std::function<bool()> is_told_to_end = {});
  // Collective, unless it unwinds: the watchdog sees to it that all ranks arrive.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;
  using Answers = std::vector<std::optional<Place>>;  // by rank

  void run(const std::stop_token& stop);
  void tick(const std::stop_token& stop);
  void grow_older();
  Place own_place() const;
  bool is_overdue() const { return age_ >= deadline_; }
  // What to do about an alarm, its own or told, on rank 0; on the others; and where ranks do not talk.
  void inquire(const std::stop_token& stop);
  void tell_rank_0();
  void end_alone(const std::stop_token& stop);
  void answer(const Received& received);
  // Sends `question` to those ranks that are in `asked` and waits for answers, for at most `patience`.
  Answers ask(Letter question, const Answers& asked, Milliseconds patience, const std::stop_token& stop);
  void last_words(const std::stop_token& stop);
  void ask_after_rank_0();
  void tell_of_failure();
  Milliseconds patience() const;  // with the answers of all ranks

  void say(const std::string& text) const;
  void say_place() const;
  void say_rank_0_is_missing() const;
  void name_culprits(const Answers& answers) const;
  [[noreturn]] void end_job() const;

  MpiCommunicator world_;
  std::chrono::seconds deadline_;
  std::vector<std::string> hosts_;  // by rank
  bool talks_ = true;
  WatchMail mail_;

  // Of the thread alone.
  std::uint64_t changes_ = 0;  // of the mark when it was last seen
  Clock::duration age_{0};     // of the mark
  Clock::time_point last_tick_ = Clock::now();
  std::int64_t questions_ = 0;
  bool was_told_ = false;                     // rank 0: another rank is overdue
  Clock::time_point next_inquiry_;            // rank 0: not before
  Clock::time_point next_alarm_;              // others: not before
  std::optional<Clock::time_point> unheard_;  // others: since when rank 0 has left an alarm without a word
  bool has_last_words_ = true;                // for the end that others make
  bool is_failure_told_ = false;              // by the rank that failed
  std::optional<Clock::time_point> asked_;  // others: since when rank 0 has been asked for a word, at the end

  std::function<bool()> is_told_to_end_;
  std::jthread thread_;  // the last: it ends first
};

}  // namespace convnet
