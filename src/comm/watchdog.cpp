#include "comm/watchdog.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "comm/ranks.hpp"
#include "comm/watch_words.hpp"
#include "convnet/error.hpp"

namespace convnet {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 100ms;
constexpr auto kPollAnswers = 10ms;
// A longer pause between two ticks means that this process was stopped: that time does not count.
constexpr auto kLongestTick = 1000ms;
// Rank 0 waits so long for answers, and the others for a word of rank 0.
constexpr auto kPatience = 2000ms;
constexpr auto kPatienceWithRank0 = 5000ms;
constexpr auto kTellAgain = 1000ms;
// Time for the others to speak, where nobody can tell when they have.
constexpr auto kLastWords = 1000ms;
// Once told to end: mpirun leaves about a second.
constexpr auto kStillInCall = 400ms;
constexpr auto kShortPatience = 400ms;

bool may_talk() {
  int level = MPI_THREAD_SINGLE;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  return level == MPI_THREAD_MULTIPLE;
}

// Signals are for the main thread, but for SIGALRM, which ends the process wherever it hangs.
void leave_signals_to_others() {
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGALRM);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

Watchdog::Watchdog(const MpiCommunicator& world, std::chrono::seconds deadline,
                   std::function<bool()> is_told_to_end)
    : world_(MpiCommunicator::duplicate_of(world)),
      deadline_(deadline),
      hosts_(world_.all_gather(host_name())),
      talks_(may_talk()),
      mail_(world_),
      is_told_to_end_(std::move(is_told_to_end)) {
  if (deadline > 0s) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
}

Watchdog::~Watchdog() {
  if (thread_.joinable() && !is_unwinding()) {
    try {
      world_.barrier();  // so that no rank is left without its watchdog while it is still on its way
    } catch (const std::exception& error) {
      say(error.what());
    }
  }
  const bool had_thread = thread_.joinable();
  thread_ = {};
  if (had_thread && talks_ && is_unwinding()) {
    tell_of_failure();
  }
}

// What ends this rank is told by itself: nobody need add who is missing. Rank 0 leads, so that it is enough
// to tell it; and it tells all.
void Watchdog::tell_of_failure() {
  try {
    const int receivers = world_.rank() == 0 ? world_.size() : 1;
    for (int rank = 0; rank < receivers; ++rank) {
      if (rank != world_.rank()) {
        mail_.send(rank, Letter::kFailing, own_place());
      }
    }
    mail_.receive();                 // gives MPI the time to send it
  } catch (const std::exception&) {  // nothing is better than a second error
  }
}

void Watchdog::run(const std::stop_token& stop) {
  leave_signals_to_others();
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any wake;  // for the stop token alone
  last_tick_ = Clock::now();
  while (!stop.stop_requested()) {
    try {
      tick(stop);
    } catch (const std::exception& error) {
      say(fmt::format("the watchdog goes on without messages: {}", error.what()));
      talks_ = false;
    }
    wake.wait_for(lock, stop, kTick, [] { return false; });
  }
}

void Watchdog::tick(const std::stop_token& stop) {
  grow_older();
  last_words(stop);
  if (!talks_) {
    if (is_overdue()) {
      end_alone(stop);
    }
    return;
  }
  while (const std::optional<Received> received = mail_.receive()) {
    answer(*received);
  }
  if (world_.rank() != 0) {
    tell_rank_0();
  } else if ((is_overdue() || was_told_) && Clock::now() >= next_inquiry_) {
    inquire(stop);
  }
}

void Watchdog::grow_older() {
  const Clock::time_point now = Clock::now();
  const auto passed = std::min<Clock::duration>(now - last_tick_, kLongestTick);
  last_tick_ = now;
  const std::uint64_t changes = world_.progress().snapshot().changes;
  age_ = changes == changes_ ? age_ + passed : 0ms;
  changes_ = changes;
}

Place Watchdog::own_place() const {
  const Progress::Mark mark = world_.progress().snapshot();
  return place_of(
      mark, mark.changes == changes_ ? std::chrono::duration_cast<Milliseconds>(age_) : Milliseconds(0));
}

void Watchdog::answer(const Received& received) {
  Place place = own_place();
  place.question = received.place.question;
  if (received.sender == 0) {
    unheard_.reset();
    has_last_words_ = has_last_words_ && !asked_;  // rank 0 is there, and speaks for all
  }
  switch (received.letter) {
    case Letter::kAlarm:
      was_told_ = true;
      mail_.send(received.sender, Letter::kHeard, place);
      break;
    case Letter::kFailing:
      is_failure_told_ = true;
      break;
    case Letter::kSay:
      has_last_words_ = false;
      say(describe(place));
      [[fallthrough]];
    case Letter::kWhere:
      mail_.send(received.sender, Letter::kAnswer, place);
      break;
    default:
      break;  // an answer that comes too late
  }
}

void Watchdog::tell_rank_0() {
  const Clock::time_point now = Clock::now();
  if (!is_overdue()) {
    unheard_.reset();
    return;
  }
  if (now >= next_alarm_) {
    mail_.send(0, Letter::kAlarm, own_place());
    next_alarm_ = now + kTellAgain;
    unheard_ = unheard_.value_or(now);
  }
  if (unheard_ && now - *unheard_ > kPatienceWithRank0) {
    say_place();
    say_rank_0_is_missing();
    std::this_thread::sleep_for(kLastWords);
    end_job();
  }
}

Watchdog::Answers Watchdog::ask(Letter question, const Answers& asked, Milliseconds patience,
                                const std::stop_token& stop) {
  Answers answers(asked.size());
  const Place letter{.question = ++questions_};
  std::size_t open = 0;
  for (std::size_t rank = 1; rank < asked.size(); ++rank) {
    if (asked[rank]) {
      mail_.send(static_cast<int>(rank), question, letter);
      ++open;
    }
  }
  const Clock::time_point end = Clock::now() + patience;
  while (open > 0 && Clock::now() < end && !stop.stop_requested()) {
    grow_older();
    const std::optional<Received> received = mail_.receive();
    if (!received) {
      std::this_thread::sleep_for(kPollAnswers);
    } else if (received->letter != Letter::kAnswer) {
      answer(*received);
    } else if (received->place.question == letter.question) {
      answers[static_cast<std::size_t>(received->sender)] = received->place;
      --open;
    }
  }
  answers.front() = own_place();  // it may have moved
  return answers;
}

// Rank 0 may have to connect to each rank first.
Watchdog::Milliseconds Watchdog::patience() const {
  constexpr auto kOfEachRank = 1ms;
  return kPatience + std::ssize(hosts_) * kOfEachRank;
}

// The alarm is true if no rank that answers has made progress for the deadline. A rank that came later than
// the others, to where they wait, has: then it is asked again when its time is over.
void Watchdog::inquire(const std::stop_token& stop) {
  const Answers everybody(hosts_.size(), Place{});
  const Answers answers = ask(Letter::kWhere, everybody, patience(), stop);
  if (stop.stop_requested()) {
    return;
  }
  was_told_ = false;  // who is still overdue tells again
  Milliseconds youngest = Milliseconds::max();
  for (const std::optional<Place>& place : answers) {
    youngest = place ? std::min(youngest, place->age) : youngest;
  }
  if (youngest < deadline_) {
    next_inquiry_ = Clock::now() + (deadline_ - youngest);
    return;
  }
  say_place();
  ask(Letter::kSay, answers, patience(), stop);
  name_culprits(answers);
  end_job();
}

void Watchdog::end_alone(const std::stop_token& stop) {
  say_place();
  std::this_thread::sleep_for(kLastWords);
  if (!stop.stop_requested()) {
    end_job();
  }
}

void Watchdog::last_words(const std::stop_token& stop) {
  const bool may_speak = talks_ && has_last_words_ && !is_failure_told_;
  if (!may_speak || !is_told_to_end_ || !is_told_to_end_() || !own_place().is_waiting() ||
      age_ < kStillInCall) {
    return;
  }
  if (world_.rank() != 0) {
    ask_after_rank_0();
    return;
  }
  has_last_words_ = false;
  const Answers answers = ask(Letter::kWhere, Answers(hosts_.size(), Place{}), kShortPatience, stop);
  const bool all_are_there =
      std::ranges::all_of(answers, [](const auto& place) { return place.has_value(); });
  if (all_are_there || is_failure_told_) {
    return;
  }
  say(describe(own_place()));
  ask(Letter::kSay, answers, kShortPatience, stop);
  name_culprits(answers);
}

// Rank 0 leads at the end; unless it is the one that was killed.
void Watchdog::ask_after_rank_0() {
  const Clock::time_point now = Clock::now();
  if (!asked_) {
    asked_ = now;
    mail_.send(0, Letter::kAlarm, own_place());
  } else if (now - *asked_ > kShortPatience) {
    has_last_words_ = false;
    say(describe(own_place()));
    say_rank_0_is_missing();
  }
}

void Watchdog::say_rank_0_is_missing() const {
  say(fmt::format("no answer from rank 0 on {} (killed, stopped or unreachable)", hosts_.front()));
}

void Watchdog::say(const std::string& text) const {
  const std::string name =
      fmt::format("rank {} on {}: ", world_.rank(), hosts_[static_cast<std::size_t>(world_.rank())]);
  // In one piece, so that lines of several ranks do not mix.
  std::fputs(fmt::format("convnet: {}{}\n", world_.size() > 1 ? name : "", text).c_str(), stderr);
}

void Watchdog::say_place() const {
  say(fmt::format("{} (--watchdog-seconds {})", describe(own_place()), deadline_.count()));
}

void Watchdog::name_culprits(const Answers& answers) const {
  if (world_.size() == 1) {
    return;
  }
  for (const std::string& line : culprits(answers, hosts_)) {
    say(line);
  }
}

// The launcher may be gone, and MPI_Abort then hangs: the alarm ends the process all the same.
void Watchdog::end_job() const {
  constexpr unsigned kSeconds = 10;
  ::alarm(kSeconds);
  constexpr int kCode = static_cast<int>(ExitCode::kUnavailable);
  if (talks_ && world_.size() > 1) {
    MPI_Abort(MPI_COMM_WORLD, kCode);
  }
  std::_Exit(kCode);
}

}  // namespace convnet
