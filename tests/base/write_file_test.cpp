#include "base/write_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "convnet/error.hpp"
#include "temporary_folder.hpp"

namespace convnet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void write_text(const std::filesystem::path& path, const std::string& text) {
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

std::string read_back(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> names_in(const TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

std::string failure_of(const std::filesystem::path& path, const std::string& text) {
  try {
    write_text(path, text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    return error.what();
  }
  return "no failure";
}

TEST(WriteFile, MakesAFileOfTheseBytesAndNoOther) {
  const TemporaryFolder folder;
  write_text(folder / "new", "text");
  EXPECT_EQ(read_back(folder / "new"), "text");
  EXPECT_THAT(names_in(folder), ElementsAre("new"));
}

TEST(WriteFile, MakesAFileThatOthersMayReadAsFarAsTheUmaskAllows) {
  const TemporaryFolder folder;
  const mode_t before = umask(027);
  write_text(folder / "new", "text");
  umask(before);
  struct stat status {};
  ASSERT_EQ(stat((folder / "new").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0640U);
}

TEST(WriteFile, ReplacesAFile) {
  const TemporaryFolder folder;
  write_text(folder / "file", "a longer text");
  write_text(folder / "file", "text");
  EXPECT_EQ(read_back(folder / "file"), "text");
}

TEST(WriteFile, LetsOneOfManyWritersWinWhole) {
  const TemporaryFolder folder;
  const std::string letters = "abcdefgh";
  std::vector<std::jthread> writers;
  for (const char letter : letters) {
    writers.emplace_back([&folder, letter] { write_text(folder / "file", std::string(100'000, letter)); });
  }
  writers.clear();
  const std::string text = read_back(folder / "file");
  ASSERT_EQ(text.size(), 100'000U);
  EXPECT_EQ(text, std::string(100'000, text[0]));
  EXPECT_THAT(names_in(folder), ElementsAre("file"));
}

TEST(WriteFile, LeavesTheOldFileWhereTheDiskIsFull) {
  const TemporaryFolder folder;
  write_text(folder / "file", "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string failure = failure_of(folder / "file", std::string(1001, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(failure, (folder / "file").string() + ": cannot write: File too large");
  EXPECT_EQ(read_back(folder / "file"), "old");
  EXPECT_THAT(names_in(folder), ElementsAre("file"));
}

TEST(WriteFile, RefusesWhatIsNotAPlaceForAFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(failure_of(folder.path(), "text"), HasSubstr("found a folder, expected the name of a file"));
  EXPECT_THAT(failure_of("/dev/null", "text"), HasSubstr("/dev/null: cannot write: found a device"));
  EXPECT_EQ(failure_of(folder / "none/file", "text"),
            (folder / "none/file").string() + ": cannot create: No such file or directory");
  EXPECT_THAT(names_in(folder), ElementsAre());
}

}  // namespace
}  // namespace convnet
