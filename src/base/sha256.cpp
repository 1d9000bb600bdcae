#include "convnet/sha256.hpp"

#include <openssl/evp.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <vector>

#include "convnet/error.hpp"

namespace convnet {
namespace {

EVP_MD_CTX* as_context(const auto& pointer) {
  return static_cast<EVP_MD_CTX*>(pointer.get());
}

void check(int result, const char* call) {
  if (result != 1) {
    throw Error(ExitCode::kInternal, std::string(call) + " failed in OpenSSL");
  }
}

}  // namespace

void Sha256::FreeContext::operator()(void* context) const {
  EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context));
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  check(EVP_DigestInit_ex(as_context(context_), EVP_sha256(), nullptr), "EVP_DigestInit_ex");
}

void Sha256::update(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(as_context(context_), bytes.data(), bytes.size()), "EVP_DigestUpdate");
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> sum{};
  check(EVP_DigestFinal_ex(as_context(context_), sum.data(), nullptr), "EVP_DigestFinal_ex");
  std::string text;
  for (const unsigned char byte : sum) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string sha256_of(std::span<const std::byte> bytes) {
  Sha256 sum;
  sum.update(bytes);
  return sum.hex();
}

std::string sha256_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  Sha256 sum;
  std::vector<char> buffer(1 << 20);
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    sum.update(std::as_bytes(std::span(buffer.data(), static_cast<std::size_t>(file.gcount()))));
  }
  if (!file.eof()) {
    throw system_error(path, "read");
  }
  return sum.hex();
}

}  // namespace convnet
