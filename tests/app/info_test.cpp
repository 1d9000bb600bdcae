#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "app/run_program.hpp"
#include "data/idx_files.hpp"
#include "temporary_folder.hpp"

namespace convnet {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

constexpr const char* kFashionMnist = "/usr/share/datasets/fashion-mnist";

// What `convnet info` says of what `convnet convert` made of a folder.
std::string info_after_convert(const std::string& folder, const std::vector<std::string>& flags = {}) {
  const TemporaryFolder out;
  std::vector<std::string> arguments{"convert", folder, out / "data.h5"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const ProgramResult converted = run_convnet(arguments);
  EXPECT_EQ(converted.exit_code, 0) << converted.err;
  const ProgramResult result = run_convnet({"info", out / "data.h5"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return result.out;
}

void expect_class_counts(const std::string& text, const std::vector<int>& train,
                         const std::vector<int>& test) {
  for (std::size_t label = 0; label < train.size(); ++label) {
    EXPECT_THAT(text, ContainsRegex(fmt::format("\n +{} +{} +{}\n", label, train[label], test[label])));
  }
}

TEST(Info, DescribesMnist) {
  const std::string text = info_after_convert(CONVNET_SOURCE_DIR "/data");
  EXPECT_THAT(text, ContainsRegex("data set +MNIST\n"));
  EXPECT_THAT(text, HasSubstr("1 x 28 x 28"));
  EXPECT_THAT(text, ContainsRegex("training +60000 images, mean 0\\.1307, standard deviation 0\\.3081"));
  EXPECT_THAT(text, ContainsRegex("test +10000 images"));
  EXPECT_THAT(text, ContainsRegex("classes +10\n"));
  expect_class_counts(text, {5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949},
                      {980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009});
  EXPECT_THAT(text, HasSubstr("ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  "
                              "train-images-idx3-ubyte.gz\n"));
}

TEST(Info, DescribesFashionMnist) {
  if (!std::filesystem::exists(kFashionMnist)) {
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  }
  const std::string text = info_after_convert(kFashionMnist);
  EXPECT_THAT(text, ContainsRegex("data set +Fashion-MNIST\n"));
  EXPECT_THAT(text, HasSubstr("mean 0.2860, standard deviation 0.3530"));
  expect_class_counts(text, std::vector<int>(10, 6000), std::vector<int>(10, 1000));
}

TEST(Info, DescribesUnknownFilesThatWereTransposed) {
  const TemporaryFolder folder;
  write_small_source_files(folder.path());
  // Labels from 1 on, so that class 0 is empty. Training pixels half 0, half 255: mean and deviation are 1/2.
  write_bytes(folder / "train-labels-idx1-ubyte", idx_bytes({5}, {1, 2, 2, 3, 2}));
  Bytes pixels(60, 0);
  std::fill(pixels.begin() + 30, pixels.end(), std::uint8_t{255});
  write_bytes(folder / "train-images-idx3-ubyte", idx_bytes({5, 4, 3}, pixels));
  const std::string text = info_after_convert(folder.path(), {"--transpose"});
  EXPECT_THAT(text, ContainsRegex("data set +unknown, transposed\n"));
  EXPECT_THAT(text, HasSubstr("1 x 3 x 4"));
  EXPECT_THAT(text, HasSubstr("5 images, mean 0.5000, standard deviation 0.5000"));
  expect_class_counts(text, {0, 1, 3, 1}, {1, 0, 2, 0});
}

TEST(Info, SaysWhatIsWrongWithAFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "data.h5";
  const ProgramResult missing = run_convnet({"info", path});
  EXPECT_EQ(missing.exit_code, 74);
  EXPECT_THAT(missing.err, HasSubstr(path + ": cannot open: No such file or directory"));

  write_bytes(path, idx_bytes({1}, {7}));
  const ProgramResult other = run_convnet({"info", path});
  EXPECT_EQ(other.exit_code, 65);
  EXPECT_EQ(other.out, "");
  EXPECT_THAT(other.err, HasSubstr(path + ": found no HDF5 file"));
  EXPECT_THAT(other.err, HasSubstr("expected a data file"));

  EXPECT_EQ(run_convnet({"info"}).exit_code, 2);
}

TEST(Info, SaysThatAFileIsTruncatedOrDamaged) {
  const TemporaryFolder folder;
  write_small_source_files(folder.path());
  const std::string path = folder / "data.h5";
  ASSERT_EQ(run_convnet({"convert", folder.path(), path}).exit_code, 0);
  const std::string whole = read_text(path);

  write_bytes(path, Bytes(whole.begin(), whole.end() - 1));
  const ProgramResult truncated = run_convnet({"info", path});
  EXPECT_EQ(truncated.exit_code, 65);
  EXPECT_THAT(truncated.err, HasSubstr(path + ": expected an intact HDF5 file, found: truncated file"));

  Bytes damaged(whole.begin(), whole.end());
  const Bytes pixels = pixel_ramp(60);
  const auto images = std::search(damaged.begin(), damaged.end(), pixels.begin(), pixels.end());
  ASSERT_NE(images, damaged.end());
  *images ^= 1;
  write_bytes(path, damaged);
  const ProgramResult result = run_convnet({"info", path});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr(path + ": cannot read /train/images: data error detected by Fletcher32"));
}

}  // namespace
}  // namespace convnet
