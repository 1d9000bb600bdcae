#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace convnet {

// The events of one kind in a log of JSON lines, in their order; none if there is no log.
inline std::vector<nlohmann::json> read_events(const std::filesystem::path& log, const std::string& kind) {
  std::vector<nlohmann::json> events;
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    auto event = nlohmann::json::parse(line);
    if (event["event"] == kind) {
      events.push_back(std::move(event));
    }
  }
  return events;
}

// The loss of every step that was logged.
inline std::vector<double> read_step_losses(const std::filesystem::path& log) {
  std::vector<double> losses;
  for (const nlohmann::json& step : read_events(log, "step")) {
    losses.push_back(step["loss"]);
  }
  return losses;
}

}  // namespace convnet
