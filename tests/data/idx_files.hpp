#pragma once

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

namespace convnet {

using Bytes = std::vector<std::uint8_t>;

// The bytes of an IDX file: magic number, dimensions as 32 bits each, highest byte first, values.
inline Bytes idx_bytes(const std::vector<std::uint32_t>& dimensions, const Bytes& values) {
  Bytes bytes{0, 0, 8, static_cast<std::uint8_t>(dimensions.size())};
  for (const std::uint32_t dimension : dimensions) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
      bytes.push_back(static_cast<std::uint8_t>(dimension >> shift));
    }
  }
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

inline Bytes gzip_bytes(Bytes plain) {
  constexpr int kGzip = 16 + MAX_WBITS;
  z_stream stream{};
  deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY);
  Bytes packed(deflateBound(&stream, plain.size()));
  stream.next_in = plain.data();
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline void write_bytes(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// Pixels that all differ from their neighbours, so that swapped axes show.
inline Bytes pixel_ramp(std::size_t count) {
  Bytes pixels(count);
  for (std::size_t i = 0; i < count; ++i) {
    pixels[i] = static_cast<std::uint8_t>(i * 7 % 251);
  }
  return pixels;
}

// Four small IDX files: 5 training and 3 test images of 4 x 3, labels 0 .. 4.
inline void write_small_source_files(const std::filesystem::path& folder) {
  write_bytes(folder / "train-images-idx3-ubyte", idx_bytes({5, 4, 3}, pixel_ramp(60)));
  write_bytes(folder / "train-labels-idx1-ubyte", idx_bytes({5}, {3, 0, 4, 1, 2}));
  write_bytes(folder / "t10k-images-idx3-ubyte", idx_bytes({3, 4, 3}, pixel_ramp(36)));
  write_bytes(folder / "t10k-labels-idx1-ubyte", idx_bytes({3}, {2, 2, 0}));
}

}  // namespace convnet
