#pragma once

#include <map>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "lasting/job.hpp"
#include "temporary_folder.hpp"

namespace convnet {

// What a run is given, beside what all of these runs are given.
struct Scenario {
  std::string name;
  int ranks;
  int share;  // of all blows, in percent
  std::vector<std::string> options;

  friend std::ostream& operator<<(std::ostream& out, const Scenario& s) { return out << s.name; }
};

// When a run is struck.
enum class Moment { kAnyTime, kStart, kProbe, kTraining, kWrite, kSynced, kRenamed, kPruning, kEvaluation };

enum class Target { kOneRank, kAllRanks, kLauncher };

struct Blow {
  int signal = 0;  // 0: none, the run is left alone
  Moment moment = Moment::kAnyTime;
  Target target = Target::kOneRank;
};

// How a life of a run ended.
struct Ending {
  int exit_code = 0;
  bool was_struck = false;
  bool was_launcher_struck = false;  // mpiexec: also where it had not started its ranks yet
  std::string phase;                 // what it was doing then
  std::string out;
  std::string err;
};

// A run on a slow disk that is begun, struck, resumed, struck ... until it is complete, and then begun anew.
// Each life is checked against what the one before it has left.
class Lives {
 public:
  Lives(const Scenario& scenario, unsigned seed);

  // One life, resumed from the latest checkpoint: struck as asked for, if it lasts so long.
  Ending live(const Blow& blow);

  // The step of the newest checkpoint; 0: none.
  std::int64_t newest_step() const;

  // Temporary files among the checkpoints.
  int left_over() const;

  // What struck lives were doing, and how often.
  const std::map<std::string, int>& phases() const { return phases_; }

  std::mt19937& random() { return random_; }

 private:
  std::vector<std::string> arguments(bool is_kept) const;
  void wait_for(const Blow& blow, Job& job);
  bool has_come(Moment moment, std::size_t steps, const Job& job) const;
  std::vector<pid_t> victims_of(const Blow& blow, const Job& job);
  void check_resumption(const Ending& ending, const std::filesystem::path& newest) const;
  void check_checkpoints() const;
  void complete(const Ending& ending);
  void sleep_up_to(double seconds);

  Scenario scenario_;
  std::mt19937 random_;
  TemporaryFolder folder_;
  std::string data_ = folder_ / "bars.h5";
  std::string checkpoints_ = folder_ / "checkpoints";
  std::string reference_;       // the uninterrupted run's weights
  double start_seconds_ = 0.0;  // until its first step
  double whole_seconds_ = 0.0;
  std::map<std::string, int> phases_;
};

}  // namespace convnet
