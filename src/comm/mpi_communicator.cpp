#include "comm/mpi_communicator.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "comm/launch.hpp"
#include "convnet/error.hpp"

namespace convnet {
namespace {

// MPI counts in int.
int to_count(std::size_t size, const char* call) {
  constexpr int kMost = std::numeric_limits<int>::max();
  if (size > static_cast<std::size_t>(kMost)) {
    throw Error(ExitCode::kInternal,
                fmt::format("{} was given {} elements: expected at most {}", call, size, kMost));
  }
  return static_cast<int>(size);
}

template <typename Value>
void all_reduce_sum_in_place(std::span<Value> values, MPI_Datatype type,
                             const MpiCommunicator& communicator) {
  const Progress::Call mark(communicator.progress(), "MPI_Allreduce");
  const int count = to_count(values.size(), "MPI_Allreduce");
  check(MPI_Allreduce(MPI_IN_PLACE, values.data(), count, type, MPI_SUM, communicator.handle()),
        "MPI_Allreduce");
}

MPI_Comm duplicate(MPI_Comm original) {
  MPI_Comm handle = MPI_COMM_NULL;
  check(MPI_Comm_dup(original, &handle), "MPI_Comm_dup");
  return handle;
}

}  // namespace

void check(int result, const char* call, std::source_location where) {
  if (result == MPI_SUCCESS) {
    return;
  }
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw Error(ExitCode::kInternal, std::string(call) + " failed: " + text.data(), where);
}

bool is_unwinding() {
  return std::uncaught_exceptions() > 0;
}

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  const std::string line(text.data());
  return line.substr(0, line.find_first_of(",\n"));
}

MpiSession::MpiSession() {
  for (const auto& [name, value] : open_mpi_settings(launch_facts(process_environment()))) {
    setenv(name.c_str(), value.c_str(), 0);
  }
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED) {
    throw Error(
        ExitCode::kUnavailable,
        "the MPI library gives thread level MPI_THREAD_SINGLE: expected at least MPI_THREAD_FUNNELED");
  }
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MpiSession::~MpiSession() {
  if (!is_unwinding()) {
    MPI_Finalize();
  }
}

MpiCommunicator::MpiCommunicator()
    : MpiCommunicator(duplicate(MPI_COMM_WORLD), std::make_shared<Progress>()) {}

MpiCommunicator MpiCommunicator::of_node(const MpiCommunicator& world) {
  const Progress::Call mark(world.progress(), "MPI_Comm_split_type");
  MPI_Comm handle = MPI_COMM_NULL;
  check(MPI_Comm_split_type(world.handle(), MPI_COMM_TYPE_SHARED, world.rank(), MPI_INFO_NULL, &handle),
        "MPI_Comm_split_type");
  return {handle, world.progress_};
}

MpiCommunicator MpiCommunicator::duplicate_of(const MpiCommunicator& other) {
  const Progress::Call mark(other.progress(), "MPI_Comm_dup");
  return {duplicate(other.handle()), other.progress_};
}

MpiCommunicator::MpiCommunicator(MPI_Comm handle, std::shared_ptr<Progress> progress)
    : progress_(std::move(progress)), handle_(handle) {
  check(MPI_Comm_rank(handle_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(handle_, &size_), "MPI_Comm_size");
}

MpiCommunicator::~MpiCommunicator() {
  if (handle_ != MPI_COMM_NULL && !is_unwinding()) {
    const Progress::Call mark(*progress_, "MPI_Comm_free");
    MPI_Comm_free(&handle_);
  }
}

MpiCommunicator::MpiCommunicator(MpiCommunicator&& other) noexcept
    : progress_(std::move(other.progress_)),
      handle_(std::exchange(other.handle_, MPI_COMM_NULL)),
      rank_(other.rank_),
      size_(other.size_) {}

MpiCommunicator& MpiCommunicator::operator=(MpiCommunicator&& other) noexcept {
  std::swap(progress_, other.progress_);
  std::swap(handle_, other.handle_);
  std::swap(rank_, other.rank_);
  std::swap(size_, other.size_);
  return *this;
}

void MpiCommunicator::all_reduce_sum(std::span<float> values) {
  all_reduce_sum_in_place(values, MPI_FLOAT, *this);
}

void MpiCommunicator::all_reduce_sum(std::span<double> values) {
  all_reduce_sum_in_place(values, MPI_DOUBLE, *this);
}

void MpiCommunicator::broadcast(std::span<std::byte> bytes, int root) {
  const Progress::Call mark(*progress_, "MPI_Bcast");
  check(MPI_Bcast(bytes.data(), to_count(bytes.size(), "MPI_Bcast"), MPI_BYTE, root, handle_), "MPI_Bcast");
}

std::vector<std::string> MpiCommunicator::all_gather(const std::string& text) {
  const Progress::Call mark(*progress_, "MPI_Allgatherv");
  const int length = to_count(text.size(), "MPI_Allgatherv");
  std::vector<int> lengths(static_cast<std::size_t>(size_));
  check(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, handle_), "MPI_Allgather");
  std::string all(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), '\0');
  to_count(all.size(), "MPI_Allgatherv");
  std::vector<int> offsets(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
  check(MPI_Allgatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(), offsets.data(), MPI_CHAR,
                       handle_),
        "MPI_Allgatherv");
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(lengths[i])));
  }
  return texts;
}

void MpiCommunicator::barrier() {
  const Progress::Call mark(*progress_, "MPI_Barrier");
  check(MPI_Barrier(handle_), "MPI_Barrier");
}

}  // namespace convnet
