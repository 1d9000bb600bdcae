#include "comm/watch_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace convnet {
namespace {

std::string_view name_of(const std::array<char, Place::kLongestName>& name) {
  return name.data();
}

long long seconds_of(const Place& place) {
  return std::chrono::duration_cast<std::chrono::seconds>(place.age).count();
}

// "of step 17, training"
std::string where(const Place& place, std::string_view preposition) {
  const std::string step =
      place.step == 0 ? "before step 1" : fmt::format("{} step {}", preposition, place.step);
  return fmt::format("{}, {}", step, name_of(place.phase));
}

bool are_together(const Place& a, const Place& b) {
  return a.step == b.step && a.call == b.call;
}

// The ranks that wait for others: where the one is that has waited longest.
std::optional<Place> meeting_place(const std::vector<std::optional<Place>>& answers) {
  std::optional<Place> longest;
  for (const std::optional<Place>& place : answers) {
    if (place && place->is_waiting() && (!longest || place->age > longest->age)) {
      longest = place;
    }
  }
  return longest;
}

std::string cut_list(const std::vector<std::string>& words) {
  constexpr std::size_t kMost = 8;
  if (words.size() <= kMost) {
    return fmt::format("{}", fmt::join(words, ", "));
  }
  return fmt::format("{} and {} more", fmt::join(words.begin(), words.begin() + kMost, ", "),
                     words.size() - kMost);
}

}  // namespace

std::string describe(const Place& place) {
  if (place.is_waiting()) {
    return fmt::format("has waited {} s in {} {}", seconds_of(place), name_of(place.call),
                       where(place, "of"));
  }
  return fmt::format("has computed for {} s {}", seconds_of(place), where(place, "in"));
}

std::vector<std::string> culprits(const std::vector<std::optional<Place>>& answers,
                                  const std::vector<std::string>& hosts) {
  const std::optional<Place> meeting = meeting_place(answers);
  std::vector<std::string> missing;
  std::vector<std::string> elsewhere;
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    const std::string name = fmt::format("rank {} on {}", rank, hosts[rank]);
    if (!answers[rank]) {
      missing.push_back(name);
    } else if (!meeting || !are_together(*answers[rank], *meeting)) {
      elsewhere.push_back(fmt::format("{} {}", name, describe(*answers[rank])));
    }
  }
  std::vector<std::string> lines;
  if (!missing.empty()) {
    lines.push_back(fmt::format("no answer from {} (killed, stopped or unreachable)", cut_list(missing)));
  }
  if (!elsewhere.empty()) {
    lines.push_back(fmt::format("{}: {}", meeting ? "elsewhere than the ranks that wait" : "nobody waits",
                                cut_list(elsewhere)));
  }
  if (lines.empty()) {
    lines.push_back(fmt::format("all ranks answer and wait in {} {}: the network loses messages",
                                name_of(meeting->call), where(*meeting, "of")));
  }
  return lines;
}

}  // namespace convnet
