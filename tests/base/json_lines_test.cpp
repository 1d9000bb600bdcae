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
