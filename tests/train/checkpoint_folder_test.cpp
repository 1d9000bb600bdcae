#include "train/checkpoint_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "convnet/error.hpp"
#include "temporary_folder.hpp"

namespace convnet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class CheckpointFolderTest : public testing::Test {
 protected:
  void put(const std::string& name) const { std::ofstream(temporary_.path() / name) << name; }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& path : folder_.checkpoints()) {
      names.push_back(path.filename().string());
    }
    return names;
  }

  TemporaryFolder temporary_;
  CheckpointFolder folder_{temporary_.path()};
};

TEST_F(CheckpointFolderTest, FindsTheNewestFirstByTheStepsNotByTheNames) {
  for (const char* name : {"step-000000090.h5", "step-1000000000.h5", "step-000000600.h5"}) {
    put(name);
  }
  EXPECT_THAT(names(), ElementsAre("step-1000000000.h5", "step-000000600.h5", "step-000000090.h5"));
  EXPECT_EQ(folder_.file_of(600), temporary_.path() / "step-000000600.h5");
}

TEST_F(CheckpointFolderTest, TakesNoOtherNameForACheckpoint) {
  for (const char* name : {"step-000000001.h5.tmp-1-2", "step-000000001.h5.damaged", "step-.h5", "step-1x.h5",
                           "step--1.h5", "best.h5", "write-test", "step-000000001", "a-step-000000001.h5"}) {
    put(name);
  }
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_THAT(CheckpointFolder(temporary_.path() / "none").checkpoints(), IsEmpty());
}

TEST_F(CheckpointFolderTest, KeepsTheNewestAndNothingThatIsNotItsOwnGoes) {
  for (const char* name : {"step-000000001.h5", "step-000000002.h5", "step-000000003.h5", "notes.txt"}) {
    put(name);
  }
  folder_.prune(2);
  EXPECT_THAT(names(), ElementsAre("step-000000003.h5", "step-000000002.h5"));
  EXPECT_TRUE(std::filesystem::exists(temporary_.path() / "notes.txt"));
}

TEST_F(CheckpointFolderTest, IsCleanedOfWhatKilledWritersLeft) {
  put("step-000000001.h5");
  put("step-000000002.h5.tmp-17-4");
  put("other.tmp-17-4");
  folder_.prepare(1000, 3);
  EXPECT_FALSE(std::filesystem::exists(temporary_.path() / "step-000000002.h5.tmp-17-4"));
  EXPECT_TRUE(std::filesystem::exists(temporary_.path() / "other.tmp-17-4"));
  EXPECT_THAT(names(), ElementsAre("step-000000001.h5"));
}

TEST_F(CheckpointFolderTest, SaysWhereItCannotBeMadeOrHasNoRoom) {
  put("file");
  const auto complaint = [](const std::filesystem::path& path, std::uint64_t bytes) -> std::string {
    try {
      CheckpointFolder(path).prepare(bytes, 3);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kIo);
      return error.what();
    }
    return "";
  };
  const std::string file = temporary_.path() / "file";
  EXPECT_THAT(complaint(file, 1), testing::HasSubstr(file));
  EXPECT_THAT(complaint(file + "/in", 1), testing::HasSubstr(file));
  constexpr std::uint64_t kMoreThanAnyDisk = std::uint64_t{1} << 60;
  EXPECT_THAT(complaint(temporary_.path(), kMoreThanAnyDisk), testing::HasSubstr("found room for"));
}

TEST_F(CheckpointFolderTest, PutsADamagedCheckpointAside) {
  put("step-000000007.h5");
  EXPECT_EQ(folder_.put_aside(folder_.file_of(7)), temporary_.path() / "step-000000007.h5.unusable");
  EXPECT_THAT(names(), IsEmpty());
}

}  // namespace
}  // namespace convnet
