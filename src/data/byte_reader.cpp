#include "data/byte_reader.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "convnet/error.hpp"

namespace convnet {

namespace {
constexpr std::size_t kBufferSize = 1 << 18;
constexpr int kGzipWithLargestWindow = 16 + MAX_WBITS;
}  // namespace

ByteReader::GzipStream::GzipStream() {
  if (inflateInit2(&state, kGzipWithLargestWindow) != Z_OK) {
    throw Error(ExitCode::kInternal, "inflateInit2 failed in zlib");
  }
}

ByteReader::GzipStream::~GzipStream() {
  inflateEnd(&state);
}

ByteReader::ByteReader(const std::filesystem::path& path)
    : path_(path.string()), file_(path, std::ios::binary), buffer_(kBufferSize) {
  if (!file_) {
    throw system_error(path_, "open");
  }
  refill();
  std::error_code has_no_size;
  file_size_ = std::filesystem::file_size(path, has_no_size);
  if (has_no_size) {
    file_size_ = 0;
  }
  if (pending_.size() >= 2 && pending_[0] == 0x1f && pending_[1] == 0x8b) {
    gzip_ = std::make_unique<GzipStream>();
  }
}

double ByteReader::fraction() const {
  return file_size_ == 0 ? 1.0 : static_cast<double>(bytes_read_) / static_cast<double>(file_size_);
}

std::size_t ByteReader::read(std::span<std::uint8_t> bytes) {
  const std::size_t count = gzip_ ? inflate(bytes) : copy(bytes);
  sum_.update(std::as_bytes(bytes.first(count)));
  return count;
}

void ByteReader::refill() {
  file_.read(reinterpret_cast<char*>(buffer_.data()), static_cast<std::streamsize>(buffer_.size()));
  if (file_.bad()) {
    throw system_error(path_, "read");
  }
  pending_ = std::span(buffer_).first(static_cast<std::size_t>(file_.gcount()));
  bytes_read_ += pending_.size();
}

std::size_t ByteReader::copy(std::span<std::uint8_t> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    if (pending_.empty()) {
      refill();
    }
    if (pending_.empty()) {
      break;
    }
    const std::size_t count = std::min(pending_.size(), bytes.size() - done);
    std::ranges::copy(pending_.first(count), bytes.subspan(done).begin());
    pending_ = pending_.subspan(count);
    done += count;
  }
  return done;
}

std::size_t ByteReader::inflate(std::span<std::uint8_t> bytes) {
  z_stream& state = gzip_->state;
  state.next_out = bytes.data();
  state.avail_out = static_cast<uInt>(bytes.size());
  while (state.avail_out > 0 && !gzip_->is_at_end) {
    if (pending_.empty()) {
      refill();
    }
    if (pending_.empty()) {
      throw Error(
          ExitCode::kData,
          fmt::format("{}: truncated: found the end of the file after {} bytes, expected more gzip data",
                      path_, bytes_read_));
    }
    state.next_in = pending_.data();
    state.avail_in = static_cast<uInt>(pending_.size());
    const int result = ::inflate(&state, Z_NO_FLUSH);
    pending_ = pending_.last(state.avail_in);
    if (result != Z_OK && result != Z_STREAM_END) {
      throw Error(ExitCode::kData,
                  fmt::format("{}: damaged: found \"{}\" in its gzip data, expected intact data", path_,
                              state.msg != nullptr ? state.msg : zError(result)));
    }
    gzip_->is_at_end = result == Z_STREAM_END;
  }
  if (gzip_->is_at_end && pending_.empty()) {
    refill();
  }
  if (gzip_->is_at_end && !pending_.empty()) {
    throw Error(ExitCode::kData, path_ + ": found bytes after the end of the gzip data, expected none");
  }
  return bytes.size() - state.avail_out;
}

}  // namespace convnet
