#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/run_program.hpp"
#include "convnet/data_file.hpp"
#include "data/idx_files.hpp"
#include "temporary_folder.hpp"

namespace convnet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kFashionMnist = "/usr/share/datasets/fashion-mnist";
constexpr int kUsage = 2;
constexpr int kData = 65;
constexpr int kIo = 74;

// A folder `in` with four small good IDX files, and an empty folder `out`.
class ConvertTest : public testing::Test {
 protected:
  ConvertTest() {
    std::filesystem::create_directory(folder_ / "in");
    std::filesystem::create_directory(folder_ / "out");
    write_small_source_files(in());
  }

  std::filesystem::path in() const { return folder_ / "in"; }
  std::string out() const { return folder_ / "out/data.h5"; }

  ProgramResult convert(std::vector<std::string> flags = {}) const {
    flags.insert(flags.begin(), {"convert", in(), out()});
    return run_convnet(flags);
  }

  void expect_nothing_is_left() const { EXPECT_TRUE(std::filesystem::is_empty(folder_ / "out")); }

  void expect_failure(const ProgramResult& result, int exit_code,
                      const std::vector<std::string>& parts) const {
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.out, "");
    for (const std::string& part : parts) {
      EXPECT_THAT(result.err, HasSubstr(part));
    }
    expect_nothing_is_left();
  }

  TemporaryFolder folder_;
};

TEST_F(ConvertTest, ConvertsAFolderOfFiles) {
  const ProgramResult result = convert();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("these files are unknown to convnet"));
  EXPECT_THAT(result.out, HasSubstr(out() + ": 5 training and 3 test images of 1 x 4 x 3, 5 classes"));
  EXPECT_THAT(result.err, HasSubstr("reading train-images-idx3-ubyte\n"));
  const DataFile file(out());
  Bytes images(60);
  file.read_images(Split::kTrain, 0, 5, images);
  EXPECT_EQ(images, pixel_ramp(60));
  std::vector<std::int32_t> labels(3);
  file.read_labels(Split::kTest, 0, labels);
  EXPECT_THAT(labels, ElementsAre(2, 2, 0));
}

TEST_F(ConvertTest, ConvertsFourNamedFiles) {
  const ProgramResult result =
      run_convnet({"convert", out(), "--train-images", in() / "train-images-idx3-ubyte", "--train-labels",
                   in() / "train-labels-idx1-ubyte", "--test-images", in() / "t10k-images-idx3-ubyte",
                   "--test-labels", in() / "t10k-labels-idx1-ubyte"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(DataFile(out()).info().test_count, 3);
}

TEST_F(ConvertTest, RecordsThatImagesWereTransposed) {
  EXPECT_EQ(convert({"--transpose", "--classes", "47"}).exit_code, 0);
  const DataFile file(out());
  EXPECT_TRUE(file.info().transposed);
  EXPECT_EQ(file.info().shape, (ImageShape{1, 3, 4}));
  EXPECT_EQ(file.info().classes, 47);
  Bytes image(12);
  file.read_images(Split::kTrain, 0, 1, image);
  EXPECT_THAT(image, ElementsAre(0, 21, 42, 63, 7, 28, 49, 70, 14, 35, 56, 77));
}

TEST_F(ConvertTest, ReplacesAnOlderFile) {
  ASSERT_EQ(convert({"--classes", "9"}).exit_code, 0);
  ASSERT_EQ(convert().exit_code, 0);
  EXPECT_EQ(DataFile(out()).info().classes, 5);
}

TEST_F(ConvertTest, DoesNoHarmWhereSeveralConvertTheSame) {
  const std::string loop = "for i in 1 2 3 4 5 6; do \"$@\" & done; wait";
  run_command({"sh", "-c", loop, "sh", CONVNET_PROGRAM, "convert", in(), out()});
  EXPECT_EQ(DataFile(out()).info().train_count, 5);
  EXPECT_EQ(std::ranges::distance(std::filesystem::directory_iterator(folder_ / "out")), 1);
}

TEST_F(ConvertTest, ConvertsMnist) {
  const ProgramResult result = run_convnet({"convert", CONVNET_SOURCE_DIR "/data", out()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("recognised by their sums: MNIST"));
  const DataFile file(out());
  EXPECT_EQ(file.info().train_count, 60'000);
  EXPECT_EQ(file.info().test_count, 10'000);
  EXPECT_EQ(file.info().shape, (ImageShape{1, 28, 28}));
  EXPECT_EQ(file.info().classes, 10);
  std::vector<std::int32_t> labels(5);
  file.read_labels(Split::kTrain, 0, labels);
  EXPECT_THAT(labels, ElementsAre(5, 0, 4, 1, 9));
  file.read_labels(Split::kTest, 0, labels);
  EXPECT_THAT(labels, ElementsAre(7, 2, 1, 0, 4));
}

TEST_F(ConvertTest, ConvertsFashionMnist) {
  if (!std::filesystem::exists(kFashionMnist)) {
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  }
  const ProgramResult result = run_convnet({"convert", kFashionMnist, out()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("recognised by their sums: Fashion-MNIST"));
  std::vector<std::int32_t> labels(5);
  DataFile(out()).read_labels(Split::kTrain, 0, labels);
  EXPECT_THAT(labels, ElementsAre(9, 0, 0, 3, 0));
}

// What to make of a good file, and what the program must then say.
struct BadInput {
  std::string name;
  std::string file;
  std::function<Bytes(Bytes)> spoil;
  std::vector<std::string> message;
};

void PrintTo(const BadInput& input, std::ostream* stream) {
  *stream << input.name;
}

class BadInputTest : public ConvertTest, public testing::WithParamInterface<BadInput> {};

TEST_P(BadInputTest, IsRefusedByNameWithNothingLeft) {
  const std::filesystem::path path = in() / GetParam().file;
  const std::string text = read_text(path);
  write_bytes(path, GetParam().spoil({text.begin(), text.end()}));
  const ProgramResult result = convert();
  expect_failure(result, kData, {path, "found", "expected"});
  expect_failure(result, kData, GetParam().message);
}

Bytes first_of(const Bytes& bytes, std::size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

std::vector<BadInput> bad_inputs() {
  const std::string images = "train-images-idx3-ubyte";
  const std::string labels = "t10k-labels-idx1-ubyte";
  const std::string page = "<!DOCTYPE html><title>404</title>";
  return {
      {"AWebPage",
       images,
       [=](const Bytes&) { return Bytes(page.begin(), page.end()); },
       {"3c 21 44 4f (\"<!DO\")"}},
      {"AnEmptyFile", images, [](const Bytes&) { return Bytes{}; }, {"found an empty file"}},
      {"AFileOf3Bytes", images, [](const Bytes& good) { return first_of(good, 3); }, {"found only 3 bytes"}},
      {"AFileOf15Bytes",
       images,
       [](const Bytes& good) { return first_of(good, 15); },
       {"found only 15 bytes"}},
      {"ALabelFileForImages",
       images,
       [](const Bytes&) { return idx_bytes({5}, Bytes(5)); },
       {"found a file that begins 00 00 08 01", "00 00 08 03"}},
      {"FewerLabelsThanImages",
       labels,
       [](const Bytes&) { return idx_bytes({2}, Bytes(2)); },
       {"found 2 labels, expected 3"}},
      {"ATruncatedFile",
       images,
       [](const Bytes& good) { return first_of(good, 70); },
       {"found only 54 bytes, expected 60 (5 x 4 x 3)"}},
      {"TruncatedGzip",
       images,
       [](const Bytes& good) {
         const Bytes packed = gzip_bytes(good);
         return first_of(packed, packed.size() - 9);
       },
       {"truncated: found the end of the file"}},
      {"GzipWithAFlippedBit",
       images,
       [](const Bytes& good) {
         Bytes packed = gzip_bytes(good);
         packed[packed.size() - 8] ^= 1;  // in the check sum
         return packed;
       },
       {"damaged: found \"incorrect data check\""}},
      {"BytesAfterTheData",
       labels,
       [](Bytes good) {
         good.push_back(0);
         return good;
       },
       {"found more than 3 bytes, expected exactly 3"}},
      {"BytesAfterTheGzipData",
       labels,
       [](const Bytes& good) {
         Bytes packed = gzip_bytes(good);
         packed.push_back(0);
         return packed;
       },
       {"found bytes after the end of the gzip data"}},
      {"ADimensionOf0",
       images,
       [](const Bytes&) {
         return idx_bytes({5, 0, 3}, {});
       },
       {"5 x 0 x 3"}},
      {"DimensionsThatOverflow",
       images,
       [](const Bytes&) {
         return idx_bytes({~0U, ~0U, ~0U}, {});
       },
       {"4294967295 x 4294967295 x 4294967295"}},
      {"DimensionsLargerThanTheFile",
       images,
       [](const Bytes&) {
         return idx_bytes({1U << 30, 1, 1}, {});
       },
       {"found only 0 bytes, expected 1073741824"}},
  };
}

INSTANTIATE_TEST_SUITE_P(Convert, BadInputTest, testing::ValuesIn(bad_inputs()),
                         [](const auto& test) { return test.param.name; });

TEST_F(ConvertTest, RefusesALabelBeyondTheClasses) {
  expect_failure(convert({"--classes", "4"}), kData,
                 {in() / "train-labels-idx1-ubyte", "found label 4 at index 2, expected labels below 4"});
}

TEST_F(ConvertTest, SaysWhichFileCannotBeRead) {
  const std::filesystem::path file = in() / "train-images-idx3-ubyte";
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  expect_failure(convert(), kIo, {file.string() + ": cannot read: Is a directory"});
  std::filesystem::remove(file);
  expect_failure(convert(), kIo, {in(), "found no file of training images, expected one named like"});
}

TEST_F(ConvertTest, SaysThatAFileMayNotBeRead) {
  if (geteuid() == 0) {
    GTEST_SKIP() << "root may read any file";
  }
  const std::filesystem::path file = in() / "train-images-idx3-ubyte";
  std::filesystem::permissions(file, std::filesystem::perms::none);
  expect_failure(convert(), kIo, {file.string() + ": cannot open: Permission denied"});
}

TEST_F(ConvertTest, LeavesNothingOnAFullDisk) {
  const std::string limited = "ulimit -f 4; exec \"$@\"";  // in units of 512 bytes or of 1024
  const ProgramResult result =
      run_command({"sh", "-c", limited, "sh", CONVNET_PROGRAM, "convert", in(), out()});
  expect_failure(result, kIo, {out() + ": cannot write: File too large"});
}

TEST_F(ConvertTest, SaysWhyTheOutputCannotBeThere) {
  expect_failure(run_convnet({"convert", in(), folder_ / "out"}), kIo,
                 {folder_ / "out", "found a folder, expected the name of a file"});
  expect_failure(run_convnet({"convert", in(), folder_ / "none/data.h5"}), kIo,
                 {folder_ / "none/data.h5", "cannot create: No such file or directory"});
}

TEST_F(ConvertTest, ExplainsWrongUse) {
  expect_failure(run_convnet({"convert"}), kUsage, {"expected OUT.h5 and either DIR or all four flags"});
  expect_failure(run_convnet({"convert", out()}), kUsage, {"found a DIR, no OUT.h5 and 0 of the four flags"});
  expect_failure(convert({"--train-images", in() / "train-images-idx3-ubyte"}), kUsage,
                 {"found a DIR, an OUT.h5 and 1 of the four flags"});
  expect_failure(convert({"--classes", "0"}), kUsage, {"--classes"});
  const std::string source = in() / "train-images-idx3-ubyte";
  const std::string bytes = read_text(source);
  expect_failure(run_convnet({"convert", in(), source}), kUsage, {source, "found one of the source files"});
  EXPECT_EQ(read_text(source), bytes);
  expect_failure(convert({"--frobnicate"}), kUsage, {"--frobnicate"});
}

}  // namespace
}  // namespace convnet
