#include "data/idx.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/expect_error.hpp"
#include "data/idx_files.hpp"
#include "temporary_folder.hpp"

namespace convnet {
namespace {

using testing::ElementsAre;

class IdxTest : public testing::Test {
 protected:
  Idx read(const Bytes& content, IdxKind kind = IdxKind::kImages) const {
    write_bytes(path(), content);
    return read_idx(path(), kind, [](double) {});
  }
  void expect_refused(const Bytes& content, const std::string& found, const std::string& expected,
                      IdxKind kind = IdxKind::kImages) const {
    expect_error([&] { read(content, kind); }, ExitCode::kData,
                 {path(), "found " + found, "expected " + expected});
  }
  std::string path() const { return folder_ / "some.gz"; }

 private:
  TemporaryFolder folder_;
};

TEST_F(IdxTest, ReadsImages) {
  const Idx idx = read(idx_bytes({2, 3, 5}, pixel_ramp(30)));
  EXPECT_THAT(idx.dimensions, ElementsAre(2, 3, 5));
  EXPECT_EQ(idx.values, pixel_ramp(30));
}

TEST_F(IdxTest, ReadsImagesOfSeveralChannels) {
  EXPECT_THAT(read(idx_bytes({2, 3, 4, 5}, pixel_ramp(120))).dimensions, ElementsAre(2, 3, 4, 5));
}

TEST_F(IdxTest, ReadsLabels) {
  const Idx idx = read(idx_bytes({4}, {9, 0, 61, 255}), IdxKind::kLabels);
  EXPECT_THAT(idx.values, ElementsAre(9, 0, 61, 255));
}

TEST_F(IdxTest, SumsTheUncompressedBytes) {
  // printf '\0\0\10\1\0\0\0\2\7\3' | sha256sum
  const std::string sum = "6174a6c654c87759472d10d1f90d3efb371aea588b47170672f6ff26dbdf37e9";
  EXPECT_EQ(read(idx_bytes({2}, {7, 3}), IdxKind::kLabels).sha256, sum);
  EXPECT_EQ(read(gzip_bytes(idx_bytes({2}, {7, 3})), IdxKind::kLabels).sha256, sum);
}

TEST_F(IdxTest, ReadsGzipDataLargerThanItsBuffers) {
  const Bytes pixels = pixel_ramp(3000 * 28 * 28);
  EXPECT_EQ(read(gzip_bytes(idx_bytes({3000, 28, 28}, pixels))).values, pixels);
}

TEST_F(IdxTest, TellsHowMuchOfTheFileIsRead) {
  write_bytes(path(), idx_bytes({3000, 28, 28}, pixel_ramp(3000 * 28 * 28)));
  std::vector<double> fractions;
  read_idx(path(), IdxKind::kImages, [&](double fraction) { fractions.push_back(fraction); });
  EXPECT_GT(fractions.size(), 2U);
  EXPECT_TRUE(std::ranges::is_sorted(fractions));
  EXPECT_LT(fractions.front(), 1.0);
  EXPECT_EQ(fractions.back(), 1.0);
}

TEST_F(IdxTest, RefusesAWebPageThatWasSavedAsGzip) {
  const std::string page = "<html><body>404 Not Found</body></html>";
  expect_refused({page.begin(), page.end()}, "a file that begins 3c 68 74 6d (\"<htm\")",
                 "an IDX file of images");
}

TEST_F(IdxTest, RefusesFilesThatEndInTheHeader) {
  const Bytes whole = idx_bytes({1, 3, 5}, pixel_ramp(15));
  expect_refused({}, "an empty file", "an IDX file of images");
  expect_refused({whole.begin(), whole.begin() + 3}, "only 3 bytes", "an IDX file of images");
  expect_refused({whole.begin(), whole.begin() + 15}, "only 15 bytes", "an IDX header of 16");
}

TEST_F(IdxTest, RefusesAnotherMagicNumber) {
  expect_refused({0, 0, 8, 1, 0, 0, 0, 0}, "a file that begins 00 00 08 01", "an IDX file of images");
  expect_refused({0, 0, 13, 3, 0, 0, 0, 0}, "a file that begins 00 00 0d 03", "an IDX file of images");
  expect_refused({0, 0, 8, 3, 0, 0, 0, 0}, "a file that begins 00 00 08 03", "an IDX file of labels",
                 IdxKind::kLabels);
}

TEST_F(IdxTest, RefusesOtherSizesThanTheHeaderTells) {
  expect_refused(idx_bytes({2, 3, 5}, pixel_ramp(29)), "only 29 bytes", "30 (2 x 3 x 5) after the header");
  expect_refused(idx_bytes({2, 3, 5}, pixel_ramp(31)), "more than 30 bytes", "exactly 30 (2 x 3 x 5)");
  expect_refused(gzip_bytes(idx_bytes({2, 3, 5}, pixel_ramp(29))), "only 29 bytes", "30 (2 x 3 x 5)");
  expect_refused(gzip_bytes(idx_bytes({2, 3, 5}, pixel_ramp(31))), "more than 30 bytes", "exactly 30");
}

TEST_F(IdxTest, RefusesDimensionsThatCannotBe) {
  expect_refused(idx_bytes({0, 28, 28}, {}), "the dimensions 0 x 28 x 28", "each to be at least 1");
  expect_refused(idx_bytes({5, 28, 0}, {}), "the dimensions 5 x 28 x 0", "each to be at least 1");
  // The product is 2^64 and more: 0 and 1 in 64 bits.
  expect_refused(idx_bytes({1U << 30, 1U << 30, 16}, {}), "the dimensions 1073741824 x 1073741824 x 16",
                 "each");
  expect_refused(idx_bytes({~0U, ~0U, 1}, {5}), "the dimensions 4294967295 x 4294967295 x 1", "each");
}

TEST_F(IdxTest, TakesNoMemoryForWhatAHeaderOnlyClaims) {
  // 2^47 bytes, more than a process can have: taking them would fail with another exception.
  expect_refused(idx_bytes({1U << 17, 1U << 15, 1U << 15}, pixel_ramp(30)), "only 30 bytes",
                 "140737488355328");
  expect_refused(gzip_bytes(idx_bytes({1U << 17, 1U << 15, 1U << 15}, pixel_ramp(30))), "only 30 bytes",
                 "1407374");
}

TEST_F(IdxTest, RefusesTruncatedGzip) {
  const Bytes whole = gzip_bytes(idx_bytes({20, 3, 5}, pixel_ramp(300)));
  for (const std::size_t lost : {1U, 4U, 8U, 50U}) {
    expect_refused({whole.begin(), whole.end() - lost}, "the end of the file after", "more gzip data");
  }
}

TEST_F(IdxTest, NeverTakesADamagedGzipFileForAnotherOne) {
  const Bytes whole = gzip_bytes(idx_bytes({20, 3, 5}, pixel_ramp(300)));
  std::size_t refused = 0;
  for (std::size_t at = 10; at < whole.size(); ++at) {  // gzip's own header is the first 10 bytes
    Bytes flipped = whole;
    flipped[at] ^= 0x10;
    try {
      EXPECT_EQ(read(flipped).values, pixel_ramp(300)) << "byte " << at;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      ++refused;
    }
  }
  EXPECT_GE(refused,
            whole.size() - 11);  // all, but perhaps one of the bits that fill up the data's last byte
}

TEST_F(IdxTest, NamesTheDamageOfAGzipFile) {
  Bytes flipped = gzip_bytes(idx_bytes({20, 3, 5}, pixel_ramp(300)));
  flipped[flipped.size() - 6] ^= 1;  // in the check sum
  expect_refused(flipped, "\"incorrect data check\" in its gzip data", "intact data");
}

TEST_F(IdxTest, RefusesBytesAfterTheGzipData) {
  Bytes bytes = gzip_bytes(idx_bytes({2, 3, 5}, pixel_ramp(30)));
  bytes.push_back('x');
  expect_refused(bytes, "bytes after the end of the gzip data", "none");
}

TEST_F(IdxTest, SaysWhyAFileCannotBeRead) {
  const TemporaryFolder folder;
  const auto read_path = [](const std::filesystem::path& path) {
    return [path] { read_idx(path, IdxKind::kImages, [](double) {}); };
  };
  expect_error(read_path(folder / "none"), ExitCode::kIo, {folder / "none", "cannot open: No such file"});
  expect_error(read_path(folder.path()), ExitCode::kIo, {folder.path(), "cannot read: Is a directory"});
  write_bytes(folder / "file", Bytes{1});
  expect_error(read_path(folder / "file" / "inside"), ExitCode::kIo, {"cannot open: Not a directory"});
}

}  // namespace
}  // namespace convnet
