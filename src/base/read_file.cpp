#include "base/read_file.hpp"

#include <iterator>
#include <span>
#include <string>

#include "convnet/error.hpp"

namespace convnet {

std::ifstream open_to_read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw system_error(path, "open");
  }
  file.peek();  // a folder can be opened, but not read
  if (file.bad()) {
    throw system_error(path, "read");
  }
  return file;
}

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream file = open_to_read(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) {
    throw system_error(path, "read");
  }
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace convnet
