#include "base/json_lines.hpp"

#include <nlohmann/json.hpp>

#include "convnet/error.hpp"

namespace convnet {

JsonLines::JsonLines(const std::filesystem::path& path) : path_(path), file_(path) {
  if (!file_) {
    throw system_error(path_, "write the log");
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
