#include "comm/together.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "convnet/error.hpp"

namespace convnet {

void together(Communicator& communicator, const std::function<void()>& action) {
  std::optional<Error> failure;
  try {
    action();
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = Error(ExitCode::kInternal, error.what());
  }
  // The exit code, a space, the message; empty where all is well.
  const auto outcomes = communicator.all_gather(
      failure ? std::to_string(static_cast<int>(failure->code())) + " " + failure->what() : "");
  const auto is_failure = [](const std::string& outcome) { return !outcome.empty(); };
  const auto first = std::ranges::find_if(outcomes, is_failure);
  if (first == outcomes.end()) {
    return;
  }
  if (first == outcomes.begin() && communicator.rank() == 0) {
    throw std::move(*failure).on_every_rank();  // rank 0 speaks, and its error knows where it was thrown
  }
  std::string message = first->substr(first->find(' ') + 1);
  if (first != outcomes.begin()) {
    message = "rank " + std::to_string(first - outcomes.begin()) + ": " + message;
  }
  throw Error(static_cast<ExitCode>(std::stoi(*first)), message).on_every_rank();
}

}  // namespace convnet
