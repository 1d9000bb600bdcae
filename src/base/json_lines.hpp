#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json_fwd.hpp>

namespace convnet {

// A file of JSON objects, one a line, each flushed as it is written: a reader may follow along, and a run
// that ends abruptly leaves whole lines.
class JsonLines {
 public:
  enum class Mode { kReplace, kGoOn };

  // Starts the file anew, or goes on behind what it holds, on a line of its own. Throws Error (kIo) if that
  // fails.
  explicit JsonLines(const std::filesystem::path& path, Mode mode = Mode::kReplace);

  // Throws Error (kIo) if the line cannot be written.
  void write(const nlohmann::ordered_json& object);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace convnet
