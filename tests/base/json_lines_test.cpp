#include "base/json_lines.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "convnet/error.hpp"
#include "temporary_folder.hpp"

namespace convnet {
namespace {

TEST(JsonLines, EveryLineCanBeReadAsSoonAsItIsWritten) {
  const TemporaryFolder folder;
  JsonLines log(folder / "log.jsonl");
  log.write({{"event", "step"}, {"loss", 0.5}});
  std::ifstream reader(folder / "log.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(reader, line));
  EXPECT_EQ(line, R"({"event":"step","loss":0.5})");
  log.write({{"event", "end"}});
  ASSERT_TRUE(std::getline(reader, line));
  EXPECT_EQ(line, R"({"event":"end"})");
}

TEST(JsonLines, GoesOnBehindWhatAFileHoldsOnALineOfItsOwn) {
  const TemporaryFolder folder;
  const std::string path = folder / "log.jsonl";
  for (const std::string before : {"", "{\"a\":1}\n", "{\"a\":1}\n{\"b"}) {
    std::ofstream(path) << before;
    JsonLines(path, JsonLines::Mode::kGoOn).write({{"c", 3}});
    std::string text;
    std::getline(std::ifstream(path), text, '\0');
    const bool is_cut = !before.empty() && before.back() != '\n';
    EXPECT_EQ(text, before + (is_cut ? "\n" : "") + "{\"c\":3}\n");
  }
  JsonLines(path).write({{"c", 3}});
  EXPECT_EQ(std::filesystem::file_size(path), 8U);
}

TEST(JsonLines, AFileThatCannotBeWrittenIsAnErrorThatNamesIt) {
  try {
    const JsonLines log("/nowhere/log.jsonl");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_NE(std::string(error.what()).find("/nowhere/log.jsonl"), std::string::npos);
  }
}

TEST(JsonLines, AFullDeviceIsAnErrorAndNotSilence) {
  JsonLines log("/dev/full");
  EXPECT_THROW(log.write({{"event", "step"}}), Error);
}

}  // namespace
}  // namespace convnet
