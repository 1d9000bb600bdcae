#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/watch_mail.hpp"

namespace convnet {

// "has waited 300 s in MPI_Allreduce of step 17, training", "has computed for 2 s before step 1, reading the
// data".
std::string describe(const Place& place);

// Given where each rank is, by rank, as far as it answered: the lines that say which ranks are missing or
// stuck, such as "no answer from rank 2 on node1 (killed, stopped or unreachable)". Long lists are cut.
std::vector<std::string> culprits(const std::vector<std::optional<Place>>& answers,
                                  const std::vector<std::string>& hosts);

}  // namespace convnet
