#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace convnet {

enum class IdxKind {
  kImages,  // magic 00 00 08 03: [N, H, W], or 00 00 08 04: [N, C, H, W]
  kLabels,  // magic 00 00 08 01: [N]
};

// What a file in the IDX format holds: big-endian, a magic number (two zeros, 08 for bytes, the number of
// dimensions), each dimension as 32 bits, then the bytes in row-major order (yann.lecun.com/exdb/mnist).
struct Idx {
  std::vector<std::int64_t> dimensions;  // each 1 .. 2^31 - 1
  std::vector<std::uint8_t> values;      // as many as the product of the dimensions
  std::string sha256;                    // of the whole file, uncompressed
};

// Told now and then, and at the end, what part of a file has been read, in [0, 1].
using ReadProgress = std::function<void(double fraction)>;

// Reads an IDX file, plain or gzip. Throws Error naming the file, what was found and what was expected: kIo
// if it cannot be read, kData if it is anything but a whole IDX file of this kind and nothing else. Memory is
// taken only as bytes really come, whatever the header claims.
Idx read_idx(const std::filesystem::path& path, IdxKind kind, const ReadProgress& progress);

}  // namespace convnet
