// A checkpoint that is damaged, or none, in the program's hands: it is named, and an older one is used. What
// a flipped bit does, in hundreds of places, tests/model/checkpoint_test.cpp tells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "lasting/kept_run.hpp"

namespace convnet {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class DamagedCheckpoint : public KeptRun {
 protected:
  // A run that stops itself at step 15, and the newest of its checkpoints.
  void SetUp() override {
    KeptRun::SetUp();
    const std::vector<std::string> kept{"--checkpoint-dir", whole_, "--checkpoint-every", "5steps"};
    Job job({1, arguments(kept), folder_.path(), "pause=2000"});
    ASSERT_TRUE(wait_for_text(job, "step-000000010.h5"));
    kill(job.launcher(), SIGTERM);
    ASSERT_EQ(job.wait(), 75);
    const auto all = CheckpointFolder(whole_).checkpoints();
    ASSERT_GE(all.size(), 2U);
    name_ = all.front().filename();
    older_ = all[1].filename();
    content_ = read_text(all.front());
  }

  fs::path newest() const { return fs::path(checkpoints_) / name_; }

  void write(const std::string& content) const { std::ofstream(newest(), std::ios::binary) << content; }

  // All that the program says of the newest checkpoint after `damage`, exit code and cause.
  void expect_refusal(const std::function<void()>& damage, int exit_code, const std::string& cause) const {
    fs::remove_all(checkpoints_);
    fs::copy(whole_, checkpoints_);
    damage();
    const ProgramResult info = run_convnet({"info", newest()});
    const ProgramResult resumed = run_convnet(arguments({"--resume", newest()}));
    for (const ProgramResult& result : {info, resumed}) {
      EXPECT_EQ(result.exit_code, exit_code) << result.err;
      EXPECT_THAT(result.err, HasSubstr(newest().string() + ": "));
    }
    EXPECT_EQ(occurrences(resumed.out, ", Step ["), 0U);
    EXPECT_THAT(resumed.err, HasSubstr(cause));
  }

  // It says what is wrong, puts it aside, and goes on from the one before, to the same end.
  void expect_older_one_used(const std::string& cause) const {
    Job job(plan(""));
    EXPECT_EQ(job.wait(), 0);
    EXPECT_THAT(job.err(), HasSubstr(newest().string() + ": found " + cause));
    EXPECT_THAT(job.err(), HasSubstr(newest().string() + ".unusable"));
    EXPECT_THAT(job.out(), HasSubstr("Resuming " + (fs::path(checkpoints_) / older_).string()));
    EXPECT_THAT(job.out(), HasSubstr(weights_));
    EXPECT_TRUE(fs::exists(newest().string() + ".unusable"));
  }

  void expect_fallback(const std::string& content, const std::string& cause) const {
    SCOPED_TRACE(cause);
    expect_refusal([&] { write(content); }, 65, cause);
    expect_older_one_used(cause);
  }

  std::string flipped(std::size_t byte) const {
    std::string content = content_;
    content[byte] = static_cast<char>(content[byte] ^ 1);
    return content;
  }

  std::string whole_ = folder_ / "whole";
  std::string name_;
  std::string older_;
  std::string content_;
};

TEST_F(DamagedCheckpoint, IsNamedAndTheOneBeforeUsed) {
  expect_fallback("", "an empty file");
  expect_fallback(content_.substr(0, 300), "");
  expect_fallback(content_.substr(0, content_.size() / 2),
                  std::to_string(content_.size() / 2 - 512) + " bytes");
  expect_fallback(content_ + "x", "a damaged checkpoint");
  expect_fallback(flipped(60), "a damaged checkpoint");                      // the header's sum
  expect_fallback(flipped(520), "a damaged checkpoint");                     // what HDF5 knows of the file
  expect_fallback(flipped(content_.size() - 5000), "a damaged checkpoint");  // a value
  std::string future = content_;
  future.replace(future.find(" 1\n"), 3, " 2\n");
  expect_fallback(future, "format version 2");
}

TEST_F(DamagedCheckpoint, AFileOfAnotherKindIsNamedAndTheOneBeforeUsed) {
  SCOPED_TRACE("text");
  expect_fallback("Epoch 1 went well.\n", "another kind of file");
  fs::remove_all(checkpoints_);
  fs::copy(whole_, checkpoints_);
  fs::copy_file(data_, newest(), fs::copy_options::overwrite_existing);
  const ProgramResult resumed = run_convnet(arguments({"--resume", newest()}));
  EXPECT_EQ(resumed.exit_code, 65);
  EXPECT_THAT(resumed.err, HasSubstr(newest().string() + ": found another kind of file"));
  expect_older_one_used("another kind of file");
}

TEST_F(DamagedCheckpoint, AFolderWithACheckpointsNameIsAnErrorThatNamesIt) {
  expect_refusal(
      [&] {
        fs::remove(newest());
        fs::create_directory(newest());
      },
      74, "found a folder");
  EXPECT_EQ(Job(plan("")).wait(), 74);
}

TEST_F(DamagedCheckpoint, IsAnErrorWhereNoneIsGood) {
  fs::create_directory(checkpoints_);
  write("x");
  Job job(plan(""));
  EXPECT_EQ(job.wait(), 65);
  EXPECT_THAT(job.err(), HasSubstr(checkpoints_ + ": found 1 checkpoint, none of them good"));
  EXPECT_TRUE(fs::exists(newest())) << "what may be of use to somebody stays where it is";
}

}  // namespace
}  // namespace convnet
