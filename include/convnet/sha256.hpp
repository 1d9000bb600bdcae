#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace convnet {

// A running SHA-256 (FIPS 180-4), computed by OpenSSL.
class Sha256 {
 public:
  Sha256();

  void update(std::span<const std::byte> bytes);

  // The sum of everything seen so far, as 64 lower-case hexadecimal digits. Ends the computation.
  std::string hex();

 private:
  struct FreeContext {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, FreeContext> context_;
};

std::string sha256_of(std::span<const std::byte> bytes);

// Throws Error (kIo) if the file cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace convnet
