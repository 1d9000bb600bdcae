// Runs whose disk lets them down: they say so once and end, and what they have saved before stands.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "lasting/kept_run.hpp"

namespace convnet {
namespace {

using testing::HasSubstr;

struct Fault {
  std::string call;
  int nth;
  int error;
  int ranks = 1;
};

class FailingDisk : public KeptRun {
 protected:
  // One complaint, which names the file, or the folder, and the cause.
  static void expect_complaint(Job& job, const std::string& name, const std::string& cause) {
    EXPECT_EQ(job.wait(), 74) << job.out() << job.err();
    const std::string err = job.err();
    EXPECT_EQ(occurrences(err, "convnet: "), occurrences(err, "convnet: info: ") + 1) << err;
    EXPECT_THAT(err, HasSubstr(name));
    EXPECT_THAT(err, HasSubstr(cause));
  }

  void expect_refusal(const std::string& disk, const std::string& cause) const {
    SCOPED_TRACE(disk + cause);
    const auto left_before = left_over();
    Job job(plan(disk));
    expect_complaint(job, checkpoints_, cause);
    EXPECT_EQ(occurrences(job.out(), ", Step ["), 0U) << job.out();
    EXPECT_LE(left_over(), left_before);
  }
};

TEST_F(FailingDisk, EndsARunThatCanNoLongerSaveAndTheOlderCheckpointStands) {
  // A checkpoint is written in 5 pieces: the 8th piece is of the second one.
  const std::vector<Fault> faults{{"open", 2, EROFS},   {"open", 2, ENOSPC},   {"write", 8, ENOSPC},
                                  {"write", 8, EIO},    {"fsync", 2, EIO},     {"close", 2, ENOSPC},
                                  {"rename", 2, EROFS}, {"rename", 2, ENOSPC}, {"write", 8, ENOSPC, 2}};
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fmt::format("{}: {}, {} ranks", fault.call, std::strerror(fault.error), fault.ranks));
    const std::string disk = fmt::format("pause=1000 piece=32768 only=step- fail={} nth={} error={}",
                                         fault.call, fault.nth, fault.error);
    Job job(plan(disk, fault.ranks));
    expect_complaint(job, checkpoints_ + "/step-000000010.h5", std::strerror(fault.error));
    EXPECT_EQ(left_over(), 0U);
    const auto left = CheckpointFolder(checkpoints_).checkpoints();
    ASSERT_EQ(left.size(), 1U);
    EXPECT_EQ(left.front().filename(), "step-000000005.h5");
    if (fault.ranks == 1) {
      expect_good_end();
    }
    std::filesystem::remove_all(checkpoints_);
  }
}

TEST_F(FailingDisk, EndsARunThatCannotRemoveAnOldCheckpoint) {
  Job job(plan("only=step- fail=remove error=13"));
  expect_complaint(job, checkpoints_ + "/step-000000005.h5", std::strerror(EACCES));
  EXPECT_EQ(left_over(), 0U);
  expect_good_end();
}

TEST_F(FailingDisk, IsNoticedBeforeTrainingBegins) {
  for (const Fault& fault : std::vector<Fault>{{"open", 1, EACCES},
                                               {"open", 1, EROFS},
                                               {"write", 1, ENOSPC},
                                               {"fsync", 1, EIO},
                                               {"close", 1, EIO},
                                               {"rename", 1, EPERM}}) {
    expect_refusal(fmt::format("only=write-test fail={} error={}", fault.call, fault.error),
                   std::strerror(fault.error));
  }
  expect_refusal("room=100000", "found room for");
}

TEST_F(FailingDisk, AFolderThatIsNoneIsNoticedBeforeTrainingBegins) {
  std::ofstream(folder_ / "file") << "precious";
  for (const char* name : {"file", "file/below"}) {
    checkpoints_ = folder_ / name;
    expect_refusal("", "Not a directory");
  }
  EXPECT_EQ(read_text(folder_ / "file"), "precious");
  checkpoints_ = "/proc/none/below";
  expect_refusal("", "cannot make the folder");
}

// A file system of its own in memory, where a test may do without harm what it likes.
class SmallDisk : public FailingDisk {
 protected:
  void SetUp() override {
    FailingDisk::SetUp();
    std::filesystem::create_directory(checkpoints_);
    if (mount("tmpfs", checkpoints_.c_str(), "tmpfs", 0, "size=1m") != 0) {
      GTEST_SKIP() << "cannot mount a tmpfs: " << std::strerror(errno);
    }
    is_mounted_ = true;
  }

  void TearDown() override {
    if (is_mounted_) {
      EXPECT_EQ(umount2(checkpoints_.c_str(), MNT_DETACH), 0) << std::strerror(errno);
    }
  }

  bool remount(unsigned long flags) const {
    return mount("tmpfs", checkpoints_.c_str(), "tmpfs", MS_REMOUNT | flags, "size=1m") == 0;
  }

  bool is_mounted_ = false;
};

TEST_F(SmallDisk, ThatFillsUpEndsTheRunAndTheOlderCheckpointStands) {
  const std::filesystem::path filler = std::filesystem::path(checkpoints_) / "filler";
  {
    Job job(plan("pause=10000 piece=32768"));
    ASSERT_TRUE(wait_for_text(job, "Saved ")) << job.err();
    std::ofstream(filler) << std::string(1 << 20, 'x');  // as much as there is room for
    expect_complaint(job, checkpoints_ + "/step-0000000", "No space left on device");
  }
  EXPECT_EQ(left_over(), 0U);
  std::filesystem::resize_file(filler, std::filesystem::file_size(filler) - 20'000);
  expect_refusal("", "found room for");
  std::filesystem::remove(filler);
  expect_good_end();
}

TEST_F(SmallDisk, ThatIsMountedAnewForReadingAloneEndsTheRunAndTheOlderCheckpointStands) {
  {
    Job job(plan("pause=10000 piece=32768"));
    ASSERT_TRUE(wait_for_text(job, "Saved ")) << job.err();
    while (!job.is_over() && !remount(MS_RDONLY)) {  // refused while a file is open for writing
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    expect_complaint(job, checkpoints_ + "/step-0000000", "Read-only file system");
  }
  EXPECT_LE(left_over(), 1U);  // written, but neither renamed nor removed any more
  expect_refusal("", "Read-only file system");
  ASSERT_TRUE(remount(0));
  expect_good_end();
}

}  // namespace
}  // namespace convnet
