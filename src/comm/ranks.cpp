#include "comm/ranks.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>

#include "convnet/error.hpp"

namespace convnet {
namespace {

std::string host_name() {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  check(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
  return name.data();
}

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

std::vector<RankFacts> gather_rank_facts(MpiCommunicator& world, MpiCommunicator& node) {
  const std::string mask = affinity_mask();
  const std::vector<std::string> masks = node.all_gather(mask);
  const auto cores = std::ranges::count(mask, '1');
  const auto sharing =
      std::ranges::count_if(masks, [&](const std::string& other) { return have_common_core(mask, other); });

  std::ostringstream own;
  own << host_name() << ' ' << node.rank() << ' ' << node.size() << ' ' << cores << ' ' << sharing;
  std::vector<RankFacts> all;
  for (const std::string& text : world.all_gather(own.str())) {
    RankFacts facts{.rank = static_cast<int>(all.size())};
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
                "OMP_NUM_THREADS is \"" + std::string(list) + "\": expected a number of threads, at least 1");
  }
  return threads;
}

void require_agreement(Communicator& world, const std::string& what, const std::string& value) {
  const std::vector<std::string> values = world.all_gather(value);
  std::string ranks;
  std::string other_value;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    if (values[rank] != values.front()) {
      other_value = ranks.empty() ? values[rank] : other_value;
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  if (!ranks.empty()) {
    throw Error(ExitCode::kUsage, what + " must be the same on all ranks: rank 0 has " + values.front() +
                                      ", but it differs on rank " + ranks + " (" + other_value + ")")
        .on_every_rank();
  }
}

void run_on_all(Communicator& world, const std::function<void()>& work) {
  std::optional<Error> failure;
  try {
    work();
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = Error(ExitCode::kInternal, error.what());
  }
  const std::vector<std::string> outcomes = world.all_gather(
      failure ? std::to_string(static_cast<int>(failure->code())) + " " + failure->what() : "");
  const auto first = std::ranges::find_if(outcomes, [](const std::string& text) { return !text.empty(); });
  if (first == outcomes.end()) {
    return;
  }
  const auto first_rank = static_cast<int>(first - outcomes.begin());
  if (first_rank == world.rank()) {
    throw std::move(*failure).on_every_rank();  // keeps the place where it was thrown
  }
  const std::size_t space = first->find(' ');
  const auto code = static_cast<ExitCode>(std::stoi(first->substr(0, space)));
  throw Error(code, first->substr(space + 1)).on_every_rank();
}

}  // namespace convnet
