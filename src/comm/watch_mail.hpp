#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>

#include "comm/mpi_communicator.hpp"

namespace convnet {

enum class Letter : int {
  kAlarm = 1,  // to rank 0: this rank has waited too long
  kHeard,      // from rank 0: it knows
  kWhere,      // from rank 0: where are you?
  kSay,        // from rank 0: say on stderr where you are, and then tell me
  kAnswer,     // to rank 0, to either question
  kFailing     // to rank 0, or from it: an error ends this rank, which speaks for itself
};

// Where a rank's main thread is, and for how long its mark has not changed. Sent as its bytes: all ranks run
// the same program.
struct Place {
  static constexpr std::size_t kLongestName = 40;

  std::int64_t question = 0;  // which one this answers, or which one this is; rank 0 counts them
  std::int64_t step = 0;
  std::chrono::milliseconds age{0};
  std::array<char, kLongestName> phase{};
  std::array<char, kLongestName> call{};  // empty: in none

  bool is_waiting() const { return call.front() != '\0'; }
};

Place place_of(const Progress::Mark& mark, std::chrono::milliseconds age);

struct Received {
  int sender = 0;
  Letter letter = Letter::kAnswer;
  Place place;
};

// Tiny messages among watchdogs. Nothing here blocks: a message to a rank that is gone is never waited for.
// Functions throw Error (kInternal) if MPI fails.
class WatchMail {
 public:
  // `communicator` serves nothing else, and outlives this.
  explicit WatchMail(const MpiCommunicator& communicator)
      : communicator_(communicator.handle()), under_way_(std::make_unique<std::list<Sent>>()) {}
  ~WatchMail();
  WatchMail(const WatchMail&) = delete;
  WatchMail& operator=(const WatchMail&) = delete;

  void send(int receiver, Letter letter, const Place& place);
  std::optional<Received> receive();

 private:
  struct Sent {
    Place place;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  MPI_Comm communicator_;
  std::unique_ptr<std::list<Sent>> under_way_;  // MPI reads from here until it is done
};

}  // namespace convnet
