#include "convnet/data_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>

#include "data/data_file_writer.hpp"
#include "data/expect_error.hpp"
#include "data/hdf5_handle.hpp"
#include "data/idx_files.hpp"
#include "temporary_folder.hpp"

namespace convnet {
namespace {

using testing::ElementsAre;

using Dimensions = std::vector<hsize_t>;

// A good data file of 3 training and 2 test images of 2 x 3 x 5, and what it takes to spoil one thing of it.
class DataFileTest : public testing::Test {
 protected:
  DataFileTest() {
    info_.shape = {2, 3, 5};
    info_.classes = 4;
    info_.train_count = 3;
    info_.test_count = 2;
    info_.name = "MNIST";
    info_.transposed = true;
    info_.sources = {{"train images", "00ff"}, {"labels.gz", "01ee"}};
    write();
  }

  std::string path() const { return folder_ / "small.h5"; }

  void write() const {
    const SplitView train{{0, info_.train_count}, train_images_, train_labels_};
    const SplitView test{{0, info_.test_count}, test_images_, test_labels_};
    write_data_file(path(), {info_, train, test, nullptr});
  }

  Hdf5File open_to_change() const { return Hdf5File(H5Fopen(path().c_str(), H5F_ACC_RDWR, H5P_DEFAULT)); }

  // Puts another data set in the place of `name`.
  void put(const std::string& name, hid_t type, const Dimensions& dimensions, const void* values = nullptr,
           hid_t properties = H5P_DEFAULT) const {
    const Hdf5File file = open_to_change();
    ASSERT_GE(H5Ldelete(file.get(), name.c_str(), H5P_DEFAULT), 0);
    const Hdf5Space space(H5Screate_simple(static_cast<int>(dimensions.size()), dimensions.data(), nullptr));
    const Hdf5DataSet set(
        H5Dcreate2(file.get(), name.c_str(), type, space.get(), H5P_DEFAULT, properties, H5P_DEFAULT));
    ASSERT_GE(set.get(), 0);
    if (values != nullptr) {
      ASSERT_GE(H5Dwrite(set.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
    }
  }

  void put_attribute(const char* name, hid_t type, const void* value) const {
    const Hdf5File file = open_to_change();
    ASSERT_GE(H5Adelete(file.get(), name), 0);
    const Hdf5Space space(H5Screate(H5S_SCALAR));
    const Hdf5Attribute attribute(H5Acreate2(file.get(), name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT));
    ASSERT_GE(H5Awrite(attribute.get(), type, value), 0);
  }

  void remove_attribute(const char* name) const { ASSERT_GE(H5Adelete(open_to_change().get(), name), 0); }

  Bytes content() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void expect_refused(std::vector<std::string> parts) const {
    const auto read_everything = [this] {
      const DataFile file(path());
      read_images(file, Split::kTrain);
      read_labels(file, Split::kTrain);
    };
    parts.push_back(path() + ": ");
    expect_error(read_everything, ExitCode::kData, parts);
  }

  static Bytes read_images(const DataFile& file, Split split) {
    Bytes images(static_cast<std::size_t>(file.info().count(split) * file.info().shape.size()));
    file.read_images(split, 0, file.info().count(split), images);
    return images;
  }

  static std::vector<std::int32_t> read_labels(const DataFile& file, Split split) {
    std::vector<std::int32_t> labels(static_cast<std::size_t>(file.info().count(split)));
    file.read_labels(split, 0, labels);
    return labels;
  }

  TemporaryFolder folder_;
  DataFileInfo info_;
  Bytes train_images_ = pixel_ramp(90);
  Bytes test_images_{train_images_.rbegin(), train_images_.rbegin() + 60};
  std::vector<std::int32_t> train_labels_{3, 0, 2};
  std::vector<std::int32_t> test_labels_{1, 1};
};

TEST_F(DataFileTest, GivesBackWhatWasWritten) {
  const DataFile file(path());
  EXPECT_EQ(file.info().shape, info_.shape);
  EXPECT_EQ(file.info().classes, 4);
  EXPECT_EQ(file.info().train_count, 3);
  EXPECT_EQ(file.info().test_count, 2);
  EXPECT_EQ(file.info().name, "MNIST");
  EXPECT_TRUE(file.info().transposed);
  ASSERT_EQ(file.info().sources.size(), 2U);
  EXPECT_EQ(file.info().sources[0].name, "train images");
  EXPECT_EQ(file.info().sources[1].sha256, "01ee");
  EXPECT_EQ(read_images(file, Split::kTrain), train_images_);
  EXPECT_EQ(read_images(file, Split::kTest), test_images_);
  EXPECT_EQ(read_labels(file, Split::kTrain), train_labels_);
  EXPECT_EQ(read_labels(file, Split::kTest), test_labels_);
}

TEST_F(DataFileTest, ReadsAnyRangeOfRows) {
  const DataFile file(path());
  Bytes image(30);
  file.read_images(Split::kTrain, 1, 1, image);
  EXPECT_TRUE(std::ranges::equal(image, std::span(train_images_).subspan(30, 30)));
  std::vector<std::int32_t> labels(2);
  file.read_labels(Split::kTrain, 1, labels);
  EXPECT_THAT(labels, ElementsAre(0, 2));
  file.read_images(Split::kTest, 2, 0, {});
  file.read_labels(Split::kTest, 0, {});
}

TEST_F(DataFileTest, RefusesRowsThatAreNotThere) {
  const DataFile file(path());
  Bytes image(30);
  EXPECT_THROW(file.read_images(Split::kTrain, 3, 1, image), Error);
  EXPECT_THROW(file.read_images(Split::kTrain, 0, 2, image), Error);
}

TEST_F(DataFileTest, IsTheSameBytesForTheSameDataSet) {
  const Bytes first = content();
  write();
  EXPECT_EQ(content(), first);
}

TEST_F(DataFileTest, ChunksWholeImagesWithCheckSums) {
  info_.shape = {1, 1000, 300};
  train_images_ = pixel_ramp(3 * 300'000);
  test_images_ = pixel_ramp(2 * 300'000);
  write();
  const Hdf5File file = open_to_change();
  const Hdf5DataSet images(H5Dopen2(file.get(), "/train/images", H5P_DEFAULT));
  const Hdf5Properties properties(H5Dget_create_plist(images.get()));
  Dimensions chunk(4);
  ASSERT_EQ(H5Pget_chunk(properties.get(), 4, chunk.data()), 4);
  EXPECT_THAT(chunk, ElementsAre(3, 1, 1000, 300));  // 1 MiB holds 3.5 of them
  ASSERT_EQ(H5Pget_nfilters(properties.get()), 1);
  EXPECT_GE(H5Pget_filter_by_id2(properties.get(), H5Z_FILTER_FLETCHER32, nullptr, nullptr, nullptr, 0,
                                 nullptr, nullptr),
            0);
}

TEST_F(DataFileTest, KeepsLabelsBeyond255) {
  info_.classes = 1000;
  train_labels_ = {999, 256, 255};
  write();
  EXPECT_EQ(read_labels(DataFile(path()), Split::kTrain), train_labels_);
}

TEST_F(DataFileTest, TakesImagesWithoutAChannelDimensionAsOneChannel) {
  put("train/images", H5T_STD_U8LE, {3, 5, 6}, train_images_.data());
  put("test/images", H5T_STD_U8LE, {2, 5, 6}, test_images_.data());
  const DataFile file(path());
  EXPECT_EQ(file.info().shape, (ImageShape{1, 5, 6}));
  EXPECT_EQ(read_images(file, Split::kTrain), train_images_);
}

TEST_F(DataFileTest, ReadsLabelsOf64Bits) {
  const std::vector<std::int64_t> labels{2, 3, 1};
  put("train/labels", H5T_STD_I64LE, {3}, labels.data());
  EXPECT_THAT(read_labels(DataFile(path()), Split::kTrain), ElementsAre(2, 3, 1));
}

TEST_F(DataFileTest, ReadsTextOfVariableLengthAsPythonWritesIt) {
  const Hdf5Type text(H5Tcopy(H5T_C_S1));
  H5Tset_size(text.get(), H5T_VARIABLE);
  const char* format = "convnet-dataset";
  put_attribute("format", text.get(), static_cast<const void*>(&format));
  EXPECT_EQ(DataFile(path()).info().classes, 4);
}

TEST_F(DataFileTest, NeedsNoNameNoSourcesAndNoWordOnTransposing) {
  for (const char* name : {"name", "source", "transposed"}) {
    remove_attribute(name);
  }
  const DataFile file(path());
  EXPECT_EQ(file.info().name, "unknown");
  EXPECT_FALSE(file.info().transposed);
  EXPECT_TRUE(file.info().sources.empty());
}

TEST_F(DataFileTest, SaysWhyAFileCannotBeRead) {
  const std::string none = folder_ / "none.h5";
  expect_error([&] { DataFile{none}; }, ExitCode::kIo, {none + ": cannot open: No such file"});
  const std::string folder = folder_.path();
  expect_error([&] { DataFile{folder}; }, ExitCode::kIo, {folder + ": cannot read: Is a directory"});
}

TEST_F(DataFileTest, RefusesAFileThatIsNotHdf5) {
  write_bytes(path(), idx_bytes({1}, {7}));
  expect_refused({"found no HDF5 file", "expected a data file"});
  write_bytes(path(), {});
  expect_refused({"found no HDF5 file", "expected a data file"});
}

TEST_F(DataFileTest, RefusesATruncatedFile) {
  const Bytes whole = content();
  for (const std::size_t size : {std::size_t{100}, whole.size() / 2, whole.size() - 1}) {
    write_bytes(path(), std::span(whole).first(size));
    expect_refused({"expected an intact HDF5 file", "found: truncated file: eof = " + std::to_string(size)});
  }
}

TEST_F(DataFileTest, RefusesOtherFormatsAndVersions) {
  const std::int64_t version = 2;
  put_attribute("version", H5T_NATIVE_INT64, &version);
  expect_refused({"found format version 2, expected version 1", "a newer convnet"});
  remove_attribute("version");
  expect_refused({"found no attribute \"version\", expected version 1"});
  const char letter = 'x';
  put_attribute("format", H5T_C_S1, &letter);
  expect_refused({"found the format \"x\"", "to be \"convnet-dataset\""});
  put_attribute("format", H5T_NATIVE_INT64, &version);
  expect_refused({"found an attribute \"format\" of another type, expected one string"});
  remove_attribute("format");
  expect_refused({"found no attribute \"format\""});
}

TEST_F(DataFileTest, RefusesANumberOfClassesThatCannotBe) {
  for (const std::int64_t classes : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 32}) {
    put_attribute("classes", H5T_NATIVE_INT64, &classes);
    expect_refused({"found " + std::to_string(classes) + " classes", "expected the attribute \"classes\""});
  }
}

TEST_F(DataFileTest, RefusesAFileWithoutTheDataSets) {
  ASSERT_GE(H5Ldelete(open_to_change().get(), "train/labels", H5P_DEFAULT), 0);
  expect_refused({"cannot open /train/labels, expected uint8 or int64 [3]", "'labels' doesn't exist"});
  ASSERT_GE(H5Ldelete(open_to_change().get(), "train/images", H5P_DEFAULT), 0);
  expect_refused({"cannot open /train/images, expected uint8 [N, C, H, W]", "'images' doesn't exist"});
  ASSERT_GE(H5Ldelete(open_to_change().get(), "train", H5P_DEFAULT), 0);
  expect_refused({"cannot open /train/images", "found: "});
}

TEST_F(DataFileTest, RefusesImagesOfAnotherTypeOrShape) {
  put("train/images", H5T_IEEE_F64LE, {3, 784});
  expect_refused({"/train/images: found float64 [3, 784], expected uint8 [N, C, H, W] or [N, H, W]"});
  put("train/images", H5T_STD_U8LE, {3, 784});
  expect_refused({"found uint8 [3, 784]"});
  put("train/images", H5T_STD_I8LE, {3, 2, 3, 5});
  expect_refused({"found int8 [3, 2, 3, 5]"});
  put("train/images", H5T_STD_U8LE, {3, 2, 0, 5});
  expect_refused({"found uint8 [3, 2, 0, 5]", "each dimension at least 1"});
}

TEST_F(DataFileTest, RefusesImageSizesThatOverflow) {
  const hsize_t large = hsize_t{1} << 30;  // 2^64 pixels
  const Hdf5Properties in_chunks(H5Pcreate(H5P_DATASET_CREATE));
  const Dimensions chunk{1, 1, 1, 1};
  H5Pset_chunk(in_chunks.get(), 4, chunk.data());
  put("train/images", H5T_STD_U8LE, {large, 4, large, 4}, nullptr, in_chunks.get());
  expect_refused({"found uint8 [1073741824, 4, 1073741824, 4]"});
}

TEST_F(DataFileTest, RefusesLabelsThatDoNotFitTheImages) {
  put("train/labels", H5T_STD_U8LE, {2});
  expect_refused({"/train/labels: found uint8 [2], expected uint8 or int64 [3], a label for each image"});
  put("train/labels", H5T_STD_U8LE, {3, 1});
  expect_refused({"found uint8 [3, 1]"});
  put("train/labels", H5T_IEEE_F32LE, {3});
  expect_refused({"found float32 [3]"});
}

TEST_F(DataFileTest, RefusesTestImagesOfAnotherShapeThanTrainingImages) {
  put("test/images", H5T_STD_U8LE, {2, 2, 3, 4});
  expect_refused({"/test/images: found images of 2 x 3 x 4, expected 2 x 3 x 5"});
}

TEST_F(DataFileTest, RefusesLabelsBeyondTheClasses) {
  const std::vector<std::uint8_t> labels{3, 4, 0};
  put("train/labels", H5T_STD_U8LE, {3}, labels.data());
  expect_refused({"/train/labels: found label 4 at index 1, expected labels in [0, 4)"});
  const std::vector<std::int64_t> negative{3, 1, -7};
  put("train/labels", H5T_STD_I64LE, {3}, negative.data());
  expect_refused({"found label -7 at index 2"});
}

TEST_F(DataFileTest, RefusesDataThatFailTheirCheckSum) {
  Bytes bytes = content();
  const auto images = std::ranges::search(bytes, train_images_);
  ASSERT_FALSE(images.empty());
  images.front() ^= 1;
  write_bytes(path(), bytes);
  expect_refused({"cannot read /train/images: data error detected by Fletcher32 checksum"});
}

TEST_F(DataFileTest, IsReadWhileSomebodyHoldsALockOnIt) {
  const int descriptor = open(path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(descriptor, LOCK_EX), 0);
  EXPECT_EQ(DataFile(path()).info().train_count, 3);
  close(descriptor);
}

}  // namespace
}  // namespace convnet
