#include <nccl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "libraries/arguments.hpp"
#include "libraries/nccl_communicator.hpp"
#include "standin.hpp"

// NCCL's entry points.

namespace standin::libraries {
namespace {

constexpr const char* kCommunicator = "ncclComm_t";
constexpr const char* kRegistration = "ncclCommRegister";
constexpr unsigned int kConfigMagic = 0xcafebeef;

ncclResult_t refuse(ncclResult_t result, const std::string& text) {
  nccl_last_error() = text;
  return result;
}

[[noreturn]] void sleep_for_ever() {
  for (;;) {
    pause();
  }
}

// The nth number that an environment variable plants, or -1.
long planted(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtol(text, nullptr, 10) : -1;
}

long& all_reduce_calls() {
  static long calls = 0;
  return calls;
}

bool has_remote_error() {
  const long nth = planted("CONVNET_STANDIN_ASYNC_ERROR");
  return nth >= 0 && all_reduce_calls() >= nth;
}

// Null, dead or (unless it may be) in progress: what no call may be given.
bool is_usable(const ncclComm* communicator, const char* call, bool may_be_in_progress) {
  if (communicator == nullptr) {
    return false;
  }
  require_object(kCommunicator, communicator, call);
  if (!may_be_in_progress && communicator->is_in_progress()) {
    violation(std::string(call) + " on a communicator whose last call is still in progress");
  }
  return true;
}

// Operations between ncclGroupStart and ncclGroupEnd, which start together.
struct Grouped {
  ncclComm* communicator;
  cudaStream_t stream;
  ncclComm::Launch launch;
};

struct Group {
  int depth = 0;
  std::vector<Grouped> operations;
};

Group& group() {
  static Group the_group;
  return the_group;
}

ncclResult_t start_group() {
  std::vector<Grouped> operations;
  operations.swap(group().operations);
  ncclResult_t result = ncclSuccess;
  while (!operations.empty()) {
    ncclComm* communicator = operations.front().communicator;
    std::vector<ncclComm::Launch> launches;
    std::vector<cudaStream_t> streams;
    for (const Grouped& operation : operations) {
      if (operation.communicator == communicator) {
        launches.push_back(operation.launch);
        streams.push_back(operation.stream);
      }
    }
    std::erase_if(operations, [&](const Grouped& o) { return o.communicator == communicator; });
    if (communicator->decide(launches, streams) == ncclInProgress) {
      result = ncclInProgress;
    }
  }
  return result;
}

ncclResult_t make_communicator(const char* call, ncclComm_t* result, int ranks, const ncclUniqueId& id,
                               int rank, bool is_blocking) {
  forbid_while_capturing(call);
  if (result == nullptr || ranks < 1 || rank < 0 || rank >= ranks) {
    return refuse(ncclInvalidArgument, std::string(call) + ": invalid rank requested");
  }
  const bool stalls = is_stalled(call);
  if (stalls && is_blocking) {
    sleep_for_ever();
  }
  auto communicator = std::make_unique<ncclComm>(ranks, rank, id, is_blocking);
  communicator->start(stalls);
  if (is_blocking) {
    const ncclResult_t outcome = communicator->wait();
    if (outcome != ncclSuccess) {
      *result = nullptr;
      return outcome;
    }
  }
  *result = communicator.release();
  object_made(kCommunicator, *result);
  return is_blocking ? ncclSuccess : ncclInProgress;
}

void launch_all_reduce(const std::shared_ptr<Channel>& channel, const AllReduce& request, const void* send,
                       void* receive, cudaStream_t stream) {
  const std::size_t size = request.type == ncclFloat32 ? sizeof(float) : sizeof(double);
  Arguments arguments("ncclAllReduce");
  if (send != receive) {
    arguments.reads("sendbuff", send, request.count * size, size);
  }
  arguments.writes("recvbuff", receive, request.count * size, size);
  arguments.enqueue(stream, [=] { channel->all_reduce(request, send, receive); });
}

// The real library's teardown waits until every graph that captured its operations is gone.
void require_no_graphs(const ncclComm& communicator, const char* call) {
  if (communicator.was_captured && standin::live_objects()["cudaGraphExec_t"] > 0) {
    standin::violation(std::string(call) + ": a graph lives that may hold the communicator's operations");
  }
}

}  // namespace
}  // namespace standin::libraries

using namespace standin::libraries;

extern "C" {

// --- The library

ncclResult_t ncclGetVersion(int* version) {
  if (standin::must_fail("ncclGetVersion")) {
    return ncclSystemError;
  }
  if (version == nullptr) {
    return ncclInvalidArgument;
  }
  const long other = planted("CONVNET_STANDIN_NCCL_VERSION");
  *version = other >= 0 ? static_cast<int>(other) : NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  standin::must_fail("ncclGetErrorString");
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t /*communicator*/) {
  standin::must_fail("ncclGetLastError");
  return nccl_last_error().c_str();
}

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  if (standin::must_fail("ncclMemAlloc")) {
    return ncclSystemError;
  }
  return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* memory) {
  if (standin::must_fail("ncclMemFree")) {
    return ncclSystemError;
  }
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

// --- Communicators

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (standin::must_fail("ncclGetUniqueId")) {
    return ncclSystemError;
  }
  if (id == nullptr) {
    return ncclInvalidArgument;
  }
  std::random_device random;
  for (std::size_t i = 0; i < sizeof id->internal; i += sizeof(unsigned int)) {
    const unsigned int word = random();
    std::memcpy(&id->internal[i], &word, sizeof word);
  }
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank) {
  if (standin::must_fail("ncclCommInitRank")) {
    return ncclSystemError;
  }
  return make_communicator("ncclCommInitRank", communicator, ranks, id, rank, true);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (standin::must_fail("ncclCommInitRankConfig")) {
    return ncclSystemError;
  }
  if (config != nullptr && (config->magic != kConfigMagic || config->size != sizeof *config)) {
    return refuse(ncclInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  }
  const int blocking = config != nullptr ? config->blocking : 1;
  if (blocking != 0 && blocking != 1 && blocking != NCCL_CONFIG_UNDEF_INT) {
    return refuse(ncclInvalidArgument, "Invalid config blocking attribute value");
  }
  return make_communicator("ncclCommInitRankConfig", communicator, ranks, id, rank, blocking != 0);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  if (standin::must_fail("ncclCommGetAsyncError")) {
    return ncclSystemError;
  }
  if (error == nullptr || !is_usable(communicator, "ncclCommGetAsyncError", true)) {
    return ncclInvalidArgument;
  }
  *error = has_remote_error() ? ncclRemoteError : communicator->poll();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t communicator, int* count) {
  if (standin::must_fail("ncclCommCount")) {
    return ncclSystemError;
  }
  if (count == nullptr || !is_usable(communicator, "ncclCommCount", false)) {
    return ncclInvalidArgument;
  }
  *count = communicator->channel()->ranks();
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t communicator, int* rank) {
  if (standin::must_fail("ncclCommUserRank")) {
    return ncclSystemError;
  }
  if (rank == nullptr || !is_usable(communicator, "ncclCommUserRank", false)) {
    return ncclInvalidArgument;
  }
  *rank = communicator->channel()->rank();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  if (standin::must_fail("ncclCommFinalize")) {
    return ncclSystemError;
  }
  standin::forbid_while_capturing("ncclCommFinalize");
  if (!is_usable(communicator, "ncclCommFinalize", false)) {
    return ncclInvalidArgument;
  }
  return communicator->finalize();
}

// Waits for what is queued, as the real one does, which also waits, for ever, for graphs that hold its
// operations.
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  if (standin::must_fail("ncclCommDestroy")) {
    return ncclSystemError;
  }
  if (communicator == nullptr) {
    return ncclSuccess;
  }
  standin::forbid_while_capturing("ncclCommDestroy");
  is_usable(communicator, "ncclCommDestroy", false);
  require_no_graphs(*communicator, "ncclCommDestroy");
  const cudaError_t error = cudaDeviceSynchronize();
  standin::object_gone(kCommunicator, communicator);
  const std::unique_ptr<ncclComm> owned(communicator);
  owned->channel()->end();
  return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  if (standin::must_fail("ncclCommAbort")) {
    return ncclSystemError;
  }
  if (communicator == nullptr) {
    return ncclSuccess;
  }
  if (standin::is_stalled("ncclCommAbort")) {
    sleep_for_ever();
  }
  is_usable(communicator, "ncclCommAbort", true);
  require_no_graphs(*communicator, "ncclCommAbort");
  communicator->abort();
  standin::end_stall("ncclAllReduce");  // its kernels stop waiting
  for (const auto& registration : communicator->registrations) {
    standin::object_gone(kRegistration, registration.get());
  }
  standin::object_gone(kCommunicator, communicator);
  // MPI may still write to it, if it is aborted before all ranks have met: it is left alone then.
  std::unique_ptr<ncclComm> owned(communicator);
  if (owned->is_in_progress()) {
    static std::vector<std::unique_ptr<ncclComm>> abandoned;
    abandoned.push_back(std::move(owned));
  }
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t communicator, void* memory, size_t bytes, void** handle) {
  if (standin::must_fail("ncclCommRegister")) {
    return ncclSystemError;
  }
  if (handle == nullptr || memory == nullptr || bytes == 0 ||
      !is_usable(communicator, "ncclCommRegister", false)) {
    return ncclInvalidArgument;
  }
  if (!standin::is_device_memory(memory, bytes)) {
    standin::violation("ncclCommRegister: buff is not " + std::to_string(bytes) + " bytes of device memory");
  }
  communicator->registrations.push_back(std::make_unique<char>());
  *handle = communicator->registrations.back().get();
  standin::object_made(kRegistration, *handle);
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t communicator, void* handle) {
  if (standin::must_fail("ncclCommDeregister")) {
    return ncclSystemError;
  }
  if (handle == nullptr || !is_usable(communicator, "ncclCommDeregister", false)) {
    return ncclInvalidArgument;
  }
  standin::object_gone(kRegistration, handle);
  std::erase_if(communicator->registrations, [handle](const auto& own) { return own.get() == handle; });
  return ncclSuccess;
}

// --- Operations

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  if (standin::must_fail("ncclAllReduce")) {
    return ncclSystemError;
  }
  if (!is_usable(communicator, "ncclAllReduce", false) || (type != ncclFloat32 && type != ncclFloat64) ||
      operation != ncclSum) {
    return refuse(ncclInvalidArgument, "ncclAllReduce: the stand-in sums float32 and float64 alone");
  }
  if (count == 0) {
    return ncclSuccess;
  }
  if (send == nullptr || receive == nullptr) {
    return refuse(ncclInvalidArgument, "ncclAllReduce: a buffer is null");
  }
  ++all_reduce_calls();
  communicator->was_captured = communicator->was_captured || standin::is_capturing(stream);
  const AllReduce request{communicator->next_call(), count, type, operation, standin::is_capturing(stream)};
  ncclComm::Launch launch = [=, channel = communicator->channel()] {
    launch_all_reduce(channel, request, send, receive, stream);
  };
  if (group().depth > 0) {
    group().operations.push_back({communicator, stream, std::move(launch)});
    return ncclSuccess;
  }
  return communicator->decide({std::move(launch)}, {stream});
}

ncclResult_t ncclGroupStart() {
  if (standin::must_fail("ncclGroupStart")) {
    return ncclSystemError;
  }
  ++group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (standin::must_fail("ncclGroupEnd")) {
    return ncclSystemError;
  }
  if (group().depth == 0) {
    return refuse(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
  }
  return --group().depth == 0 ? start_group() : ncclSuccess;
}

}  // extern "C"
