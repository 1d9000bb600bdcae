#include "train/intervals.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "convnet/error.hpp"

namespace convnet {
namespace {

constexpr std::int64_t kMost = 1'000'000'000;

constexpr std::array kUnits{std::pair{"steps", IntervalUnit::kSteps},
                            std::pair{"epochs", IntervalUnit::kEpochs},
                            std::pair{"minutes", IntervalUnit::kMinutes}};

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number =
      error == std::errc() && end == text.data() + text.size() && value >= 0 && value <= kMost;
  return is_number ? std::optional(value) : std::nullopt;
}

// "1:02:03" gives 1, 2, 3; nothing if a part is no number.
std::optional<std::vector<std::int64_t>> numbers_between_colons(std::string_view text) {
  std::vector<std::int64_t> parts;
  while (true) {
    const std::size_t colon = text.find(':');
    const auto part = number(text.substr(0, colon));
    if (!part) {
      return std::nullopt;
    }
    parts.push_back(*part);
    if (colon == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(colon + 1);
  }
}

// "90m", "2h", "30s"
std::optional<double> seconds_with_unit(std::string_view text) {
  constexpr std::array kSeconds{std::pair{'s', 1.0}, std::pair{'m', 60.0}, std::pair{'h', 3600.0}};
  for (const auto& [unit, seconds] : kSeconds) {
    if (text.ends_with(unit)) {
      const auto count = number(text.substr(0, text.size() - 1));
      return count ? std::optional(static_cast<double>(*count) * seconds) : std::nullopt;
    }
  }
  return std::nullopt;
}

// "M:S", "H:M:S", "D-H:M:S"
std::optional<double> seconds_of_clock(std::string_view text) {
  std::int64_t days = 0;
  const std::size_t dash = text.find('-');
  if (dash != std::string_view::npos) {
    const auto count = number(text.substr(0, dash));
    if (!count) {
      return std::nullopt;
    }
    days = *count;
    text.remove_prefix(dash + 1);
  }
  const auto parts = numbers_between_colons(text);
  if (!parts || parts->size() < 2 || parts->size() > 3) {
    return std::nullopt;
  }
  std::int64_t seconds = 0;
  for (const std::int64_t part : *parts) {
    seconds = 60 * seconds + part;
  }
  return static_cast<double>(86400 * days + seconds);
}

}  // namespace

Interval parse_interval(const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto count = number(std::string_view(text).substr(0, digits));
  const std::size_t begin = std::min(text.find_first_not_of(' ', digits), text.size());
  const std::string unit = text.substr(begin);
  if (count.value_or(0) >= 1) {
    if (unit.empty()) {
      return {*count, IntervalUnit::kSteps};
    }
    for (const auto& [name, named] : kUnits) {
      if (unit == name || unit + "s" == name) {
        return {*count, named};
      }
    }
  }
  throw Error(ExitCode::kUsage,
              text + " is not a number of at least 1 and steps, epochs or minutes, such as 500steps");
}

std::string to_string(const Interval& interval) {
  for (const auto& [name, named] : kUnits) {
    if (named == interval.unit) {
      return std::to_string(interval.count) + name;
    }
  }
  return "?";
}

double parse_duration(const std::string& text) {
  if (text == "0" || text == "UNLIMITED" || text == "NOT_SET" || text == "INVALID") {
    return 0.0;
  }
  const auto with_unit = seconds_with_unit(text);
  const auto seconds = with_unit ? with_unit : seconds_of_clock(text);
  if (!seconds || *seconds == 0.0) {
    throw Error(ExitCode::kUsage,
                text + " is not a time such as 90m, 2h, 30s, 59:30 (minutes:seconds), 1:30:00 or 2-12:00:00");
  }
  return *seconds;
}

}  // namespace convnet
