#include "train/checkpoint_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "base/write_file.hpp"
#include "convnet/error.hpp"

namespace convnet {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".h5";
constexpr std::string_view kProbe = "write-test";

// "step-000000600.h5" gives 600.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) {
    return std::nullopt;
  }
  const auto* const first = name.data() + kPrefix.size();
  const auto* const last = name.data() + name.size() - kSuffix.size();
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(first, last, step);
  return error == std::errc() && end == last && step >= 0 ? std::optional(step) : std::nullopt;
}

// Of a checkpoint, or a probe, that was being written as its writer was killed.
bool is_left_over(const std::string& name) {
  const std::size_t end = name.find(".tmp-");
  return end != std::string::npos && (name.starts_with(kProbe) || step_of(name.substr(0, end)).has_value());
}

[[noreturn]] void fail(const fs::path& path, const std::string& call, const std::error_code& error) {
  throw Error(ExitCode::kIo, fmt::format("{}: cannot {}: {}", path.string(), call, error.message()));
}

}  // namespace

fs::path CheckpointFolder::file_of(std::int64_t global_step) const {
  return path_ / fmt::format("{}{:09}{}", kPrefix, global_step, kSuffix);
}

std::vector<fs::path> CheckpointFolder::checkpoints() const {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto step = step_of(entry->path().filename().string())) {
      found.emplace_back(*step, entry->path());
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    fail(path_, "list the folder", error);
  }
  std::ranges::sort(found, std::ranges::greater());
  std::vector<fs::path> paths;
  paths.reserve(found.size());
  for (auto& [step, path] : found) {
    paths.push_back(std::move(path));
  }
  return paths;
}

void CheckpointFolder::prepare(std::uint64_t bytes, int keep) const {
  std::error_code error;
  std::vector<fs::path> left_over;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    if (is_left_over(entry.path().filename().string())) {
      left_over.push_back(entry.path());
    }
  }
  for (const fs::path& path : left_over) {
    fs::remove(path, error);
  }
  const fs::space_info space = fs::space(path_, error);
  const auto existing = std::min(std::ssize(checkpoints()), std::ptrdiff_t{keep});
  const auto more =
      static_cast<std::uint64_t>(keep + 1 - existing);  // an old one goes when the new one is whole
  if (!error && space.available < more * bytes) {
    throw Error(
        ExitCode::kIo,
        fmt::format("{}: found room for {} bytes, expected at least {}, {} checkpoint{} more (--keep {})",
                    path_.string(), space.available, more * bytes, more, more == 1 ? "" : "s", keep));
  }
  const fs::path probe = path_ / kProbe;
  write_file_atomically(probe, std::vector<std::byte>(bytes));
  fs::remove(probe, error);
}

void CheckpointFolder::prune(int keep) const {
  const std::vector<fs::path> all = checkpoints();
  for (std::size_t i = static_cast<std::size_t>(keep); i < all.size(); ++i) {
    std::error_code error;
    fs::remove(all[i], error);
    if (error) {
      fail(all[i], "remove an old checkpoint", error);
    }
  }
}

fs::path CheckpointFolder::put_aside(const fs::path& checkpoint) const {
  fs::path aside = checkpoint.string() + ".unusable";
  std::error_code error;
  fs::rename(checkpoint, aside, error);
  if (error) {
    fail(checkpoint, "rename it to " + aside.filename().string(), error);
  }
  return aside;
}

}  // namespace convnet
