#include "convnet/sha256.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "convnet/error.hpp"
#include "temporary_folder.hpp"

namespace convnet {
namespace {

// The examples of FIPS 180-4, from NIST's "Examples with Intermediate Values", and the sum of the empty text.
const std::string kEmptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const std::string kAbcSum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const std::string kMillionASum = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(Sha256, GivesTheSumsOfTheStandard) {
  EXPECT_EQ(sha256_of({}), kEmptySum);
  EXPECT_EQ(sha256_of(bytes_of("abc")), kAbcSum);
  EXPECT_EQ(sha256_of(bytes_of(std::string(1'000'000, 'a'))), kMillionASum);
}

TEST(Sha256, DoesNotDependOnHowTheBytesAreCut) {
  Sha256 sum;
  for (int i = 0; i < 1000; ++i) {
    sum.update(bytes_of(std::string(999, 'a')));
    sum.update(bytes_of("a"));
  }
  EXPECT_EQ(sum.hex(), kMillionASum);
}

TEST(Sha256, SumsAFileLargerThanItsBuffer) {
  const TemporaryFolder folder;
  const std::string bytes(3'000'001, 'x');
  std::ofstream(folder / "file", std::ios::binary) << bytes;
  EXPECT_EQ(sha256_of_file(folder / "file"), sha256_of(bytes_of(bytes)));
}

TEST(Sha256, NamesAFileThatIsMissing) {
  try {
    sha256_of_file("/nowhere/file");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_THAT(error.what(), testing::HasSubstr("/nowhere/file"));
    EXPECT_THAT(error.what(), testing::HasSubstr("No such file or directory"));
  }
}

}  // namespace
}  // namespace convnet
