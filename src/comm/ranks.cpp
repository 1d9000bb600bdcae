#include "comm/ranks.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "convnet/error.hpp"

namespace convnet {
namespace {

// The affinity mask as text, core 0 first: '1' for a core that this process may use, else '0'.
std::string affinity_mask() {
  std::vector<cpu_set_t> sets(1);
  while (sched_getaffinity(0, sets.size() * sizeof(cpu_set_t), sets.data()) != 0) {
    if (errno != EINVAL) {
      throw system_error("the affinity mask", "call sched_getaffinity");
    }
    sets.resize(2 * sets.size());  // EINVAL: the machine has more cores than the sets have room for
  }
  std::string mask(sets.size() * CPU_SETSIZE, '0');
  for (std::size_t core = 0; core < mask.size(); ++core) {
    if (CPU_ISSET_S(core, sets.size() * sizeof(cpu_set_t), sets.data())) {
      mask[core] = '1';
    }
  }
  return mask;
}

bool have_common_core(std::string_view a, std::string_view b) {
  for (std::size_t core = 0; core < std::min(a.size(), b.size()); ++core) {
    if (a[core] == '1' && b[core] == '1') {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string host_name() {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  check(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
  return name.data();
}

std::vector<RankFacts> gather_rank_facts(MpiCommunicator& world, MpiCommunicator& node) {
  const std::string mask = affinity_mask();
  const std::vector<std::string> masks = node.all_gather(mask);
  const auto cores = std::ranges::count(mask, '1');
  const auto sharing =
      std::ranges::count_if(masks, [&](const std::string& other) { return have_common_core(mask, other); });

  std::vector<RankFacts> all;
  for (const std::string& text : world.all_gather(
           fmt::format("{} {} {} {} {}", host_name(), node.rank(), node.size(), cores, sharing))) {
    RankFacts facts;
    facts.rank = static_cast<int>(all.size());
    std::istringstream(text) >> facts.host >> facts.local_rank >> facts.local_size >> facts.cores >>
        facts.ranks_sharing;
    all.push_back(facts);
  }
  return all;
}

int thread_count(const RankFacts& facts, int requested) {
  if (requested > 0) {
    return requested;
  }
  const char* const variable = std::getenv("OMP_NUM_THREADS");
  if (variable == nullptr) {
    return std::max(1, facts.cores / facts.ranks_sharing);
  }
  // A list, "4,2", gives a number for each level of nesting: the first one counts.
  const std::string_view list(variable);
  const std::string_view first = list.substr(0, list.find(','));
  int threads = 0;
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), threads);
  if (error != std::errc() || end != first.data() + first.size() || threads < 1) {
    throw Error(ExitCode::kUsage,
                fmt::format("OMP_NUM_THREADS is \"{}\": expected a number of threads, at least 1", list));
  }
  return threads;
}

bool is_agreed(Communicator& world, const std::string& value) {
  const std::vector<std::string> values = world.all_gather(value);
  return std::ranges::all_of(values, [&](const std::string& other) { return other == values.front(); });
}

void require_agreement(Communicator& world, const std::string& what, const std::string& value) {
  const std::vector<std::string> values = world.all_gather(value);
  std::vector<std::string> differing;
  std::string example;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    if (values[rank] != values.front()) {
      differing.push_back(std::to_string(rank));
      example = "rank " + differing.back() + " has " + values[rank];
    }
  }
  if (!differing.empty()) {
    throw Error(
        ExitCode::kUsage,
        fmt::format("{} must be the same on all ranks: rank 0 has {}, {}{}", what, values.front(), example,
                    differing.size() == 1
                        ? ""
                        : fmt::format(" (ranks {} differ from rank 0)", fmt::join(differing, ", "))))
        .on_every_rank();
  }
}

}  // namespace convnet
