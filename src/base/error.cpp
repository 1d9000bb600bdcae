#include "convnet/error.hpp"

#include <cerrno>
#include <system_error>

namespace convnet {

std::string Error::location() const {
  const std::string file = where_.file_name();
  const auto source_root = file.rfind("src/");
  return (source_root == std::string::npos ? file : file.substr(source_root)) + ":" +
         std::to_string(where_.line());
}

Error system_error(const std::string& path, const std::string& call, std::source_location where) {
  const std::string text = std::generic_category().message(errno);
  return {ExitCode::kIo, path + ": cannot " + call + ": " + text, where};
}

}  // namespace convnet
