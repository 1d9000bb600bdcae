#include "train/nonfinite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ranges>
#include <string>
#include <vector>

namespace convnet {
namespace {

bool are_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

// "the gradient of fc.bias", of the last tensor that is not finite, which is the first that backward reaches;
// empty if all are.
std::string culprit(const StateLayout& layout, std::span<const float> gradients) {
  for (const TensorInfo& tensor : layout.tensors() | std::views::reverse) {
    if (tensor.is_parameter && !are_finite(tensor.of(gradients))) {
      return "the gradient of " + tensor.name;
    }
  }
  return "";
}

// What went wrong on this rank alone; empty if nothing did.
std::string own_fault(const BadStep& bad, Replica& replica, const StateLayout& layout) {
  const ModelState state = replica.read_state();
  replica.write_state(state);  // lets the replica compute again
  replica.forward_backward(bad.rows, bad.gradient_scale);
  const std::string gradient = culprit(layout, replica.read_gradients());
  const double loss = replica.result().local_loss_sum / std::max(1.0, static_cast<double>(bad.rows.size()));
  if (std::isfinite(loss) && gradient.empty()) {
    return "";
  }
  return fmt::format("loss {}, {} not finite", loss,
                     gradient.empty() ? "all gradients finite, the loss" : gradient);
}

}  // namespace

Error nonfinite_error(const BadStep& bad, Replica& replica, const StateLayout& layout, Communicator& world) {
  std::string faults;
  const std::vector<std::string> all = world.all_gather(own_fault(bad, replica, layout));
  constexpr int kMostNamed = 8;
  int named = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty() && ++named <= kMostNamed) {
      faults += fmt::format("; rank {}: {}", rank, all[rank]);
    }
  }
  if (named > kMostNamed) {
    faults += fmt::format("; and {} more ranks", named - kMostNamed);
  }
  if (named == 0) {
    faults = "; each rank's own gradient is finite, only their sum is not";
  }
  return Error(ExitCode::kData,
               fmt::format(
                   "step {} of epoch {} (step {} of the run) gives a loss or gradient that is not finite{}. "
                   "The weights are those before that step; a lower --lr may help",
                   bad.step, bad.epoch, bad.global_step, faults))
      .on_every_rank();
}

}  // namespace convnet
