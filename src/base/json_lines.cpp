#include "base/json_lines.hpp"

#include <nlohmann/json.hpp>

#include "convnet/error.hpp"

namespace convnet {
namespace {

// Of a file that is not empty; else that of a line's end.
char last_byte(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  char byte = '\n';
  if (file.seekg(-1, std::ios::end)) {
    file.get(byte);
  }
  return byte;
}

}  // namespace

JsonLines::JsonLines(const std::filesystem::path& path, Mode mode) : path_(path) {
  const bool ends_within_a_line = mode == Mode::kGoOn && last_byte(path) != '\n';
  file_.open(path, mode == Mode::kGoOn ? std::ios::app : std::ios::trunc);
  if (!file_) {
    throw system_error(path_, "write the log");
  }
  if (ends_within_a_line) {
    file_ << '\n';
  }
}

void JsonLines::write(const nlohmann::ordered_json& object) {
  // A path need not be UTF-8, which JSON must be.
  constexpr int kOneLine = -1;
  file_ << object.dump(kOneLine, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << std::endl;
  if (!file_) {
    throw system_error(path_, "write the log");
  }
}

}  // namespace convnet
