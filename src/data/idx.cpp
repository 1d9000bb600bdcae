#include "data/idx.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <source_location>
#include <span>

#include "convnet/error.hpp"
#include "data/byte_reader.hpp"

namespace convnet {
namespace {

constexpr std::size_t kMagicSize = 4;
constexpr std::size_t kPieceSize = 1 << 20;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& found,
                       const std::string& expected,
                       std::source_location where = std::source_location::current()) {
  throw Error(ExitCode::kData, fmt::format("{}: found {}, expected {}", path.string(), found, expected),
              where);
}

// "3c 68 74 6d ("<htm")"
std::string spell_bytes(std::span<const std::uint8_t> bytes) {
  const std::string codes = fmt::format("{:02x}", fmt::join(bytes, " "));
  const bool is_text =
      std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte >= ' ' && byte <= '~'; });
  return is_text ? fmt::format("{} (\"{}\")", codes, std::string(bytes.begin(), bytes.end())) : codes;
}

// The number of dimensions that the magic number tells.
std::size_t read_magic(ByteReader& reader, const std::filesystem::path& path, IdxKind kind) {
  const std::string expected = kind == IdxKind::kImages
                                   ? "an IDX file of images, which begins 00 00 08 03 or 00 00 08 04"
                                   : "an IDX file of labels, which begins 00 00 08 01";
  std::array<std::uint8_t, kMagicSize> magic{};
  const std::size_t count = reader.read(magic);
  if (count == 0) {
    fail(path, "an empty file", expected);
  }
  if (count < kMagicSize) {
    fail(path, fmt::format("only {} bytes", count), expected);
  }
  const std::size_t rank = magic[3];
  const bool has_right_rank = kind == IdxKind::kImages ? rank == 3 || rank == 4 : rank == 1;
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != 8 || !has_right_rank) {
    fail(path, "a file that begins " + spell_bytes(magic), expected);
  }
  return rank;
}

std::vector<std::int64_t> read_dimensions(ByteReader& reader, const std::filesystem::path& path,
                                          std::size_t rank) {
  std::vector<std::uint8_t> header(4 * rank);
  const std::size_t count = reader.read(header);
  if (count < header.size()) {
    fail(path, fmt::format("only {} bytes", kMagicSize + count),
         fmt::format("an IDX header of {}", kMagicSize + header.size()));
  }
  std::vector<std::int64_t> dimensions;
  for (std::size_t i = 0; i < header.size(); i += 4) {
    dimensions.push_back(std::int64_t{header[i]} << 24 | header[i + 1] << 16 | header[i + 2] << 8 |
                         header[i + 3]);
  }
  return dimensions;
}

// The number of values, which the file's real size need not be equal to yet.
std::size_t claimed_size(const std::filesystem::path& path, const std::vector<std::int64_t>& dimensions) {
  constexpr std::int64_t kLargestDimension = std::numeric_limits<std::int32_t>::max();
  constexpr std::int64_t kLargestSize = std::int64_t{1} << 48;
  std::int64_t size = 1;
  for (const std::int64_t dimension : dimensions) {
    if (dimension < 1 || dimension > kLargestDimension || dimension > kLargestSize / size) {
      fail(path, fmt::format("the dimensions {}", fmt::join(dimensions, " x ")),
           "each to be at least 1 and their product to be a possible size");
    }
    size *= dimension;
  }
  return static_cast<std::size_t>(size);
}

}  // namespace

Idx read_idx(const std::filesystem::path& path, IdxKind kind, const ReadProgress& progress) {
  ByteReader reader(path);
  const std::size_t rank = read_magic(reader, path, kind);
  Idx idx{.dimensions = read_dimensions(reader, path, rank), .values = {}, .sha256 = {}};
  const std::size_t size = claimed_size(path, idx.dimensions);

  // One byte more than there should be, to see that the file ends where it should.
  bool is_at_end = false;
  while (!is_at_end && idx.values.size() <= size) {
    const std::size_t done = idx.values.size();
    const std::size_t piece = std::min(kPieceSize, size + 1 - done);
    idx.values.resize(done + piece);
    const std::size_t count = reader.read(std::span(idx.values).last(piece));
    idx.values.resize(done + count);
    is_at_end = count < piece;
    progress(reader.fraction());
  }
  const std::string expected =
      fmt::format("{} ({}) after the header", size, fmt::join(idx.dimensions, " x "));
  if (idx.values.size() > size) {
    fail(path, fmt::format("more than {} bytes", size), "exactly " + expected);
  }
  if (idx.values.size() < size) {
    fail(path, fmt::format("only {} bytes", idx.values.size()), expected);
  }
  idx.sha256 = reader.sha256();
  return idx;
}

}  // namespace convnet
