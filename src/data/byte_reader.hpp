#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convnet/sha256.hpp"

namespace convnet {

// The bytes of a file from its start on, inflated if the file begins like a gzip file, whatever its name is.
// Throws Error naming the file: kIo if it cannot be read, kData if its gzip data is truncated, damaged or
// followed by other bytes.
class ByteReader {
 public:
  explicit ByteReader(const std::filesystem::path& path);

  // Fills `bytes`, or what there is up to the end; returns how many. The end of gzip data is reached, and its
  // check sum compared, once fewer bytes come than were asked for.
  std::size_t read(std::span<std::uint8_t> bytes);

  // How much of the file has been read, in [0, 1].
  double fraction() const;

  // The SHA-256 of all bytes given out. Ends the reading.
  std::string sha256() { return sum_.hex(); }

 private:
  class GzipStream {
   public:
    GzipStream();
    ~GzipStream();
    GzipStream(const GzipStream&) = delete;
    GzipStream& operator=(const GzipStream&) = delete;

    z_stream state{};
    bool is_at_end = false;
  };

  void refill();
  std::size_t copy(std::span<std::uint8_t> bytes);
  std::size_t inflate(std::span<std::uint8_t> bytes);

  std::string path_;
  std::ifstream file_;
  std::uint64_t file_size_ = 0;  // 0 if it is not known: of a pipe
  std::uint64_t bytes_read_ = 0;
  std::vector<std::uint8_t> buffer_;
  std::span<std::uint8_t> pending_;   // the part of buffer_ not used yet
  std::unique_ptr<GzipStream> gzip_;  // none for a plain file
  Sha256 sum_;
};

}  // namespace convnet
