#pragma once

#include <span>
#include <vector>

#include "convnet/communicator.hpp"

namespace convnet {

// The values of all ranks, one rank's behind another's, in rank order. All ranks have equally many.
// Collective.
std::vector<float> gather_values(std::span<const float> own, Communicator& world);

// The mean of `parts` parts of equal length, element by element.
std::vector<float> mean_of_parts(std::span<const float> all, int parts);

}  // namespace convnet
