#include "compute/cuda/nccl_communicator.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <future>
#include <iostream>
#include <span>
#include <thread>

#include "base/clock.hpp"
#include "compute/cuda/staged_communicator.hpp"

namespace convnet::cuda {
namespace {

constexpr std::chrono::seconds kAbortTimeout{10};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return std::string(name) + (value == nullptr ? " is not set" : std::string(" is ") + value);
}

// "eth0 10.0.0.1, ib0 10.1.0.1": the interfaces that are up, but for loopback, with their IPv4 addresses.
std::string interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return "unknown";
  }
  std::string text;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool is_of_use = entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET &&
                           (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (is_of_use) {
      std::array<char, INET_ADDRSTRLEN> address{};
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, address.data(),
                address.size());
      text += (text.empty() ? "" : ", ") + std::string(entry->ifa_name) + " " + address.data();
    }
  }
  freeifaddrs(list);
  return text.empty() ? "none but loopback" : text;
}

}  // namespace

NcclCommunicator::NcclCommunicator(Communicator& world, std::chrono::seconds timeout,
                                   const Registration& registration)
    : rank_(world.rank()), size_(world.size()), timeout_(timeout) {
  try {
    connect(world);
    settle(ncclCommRegister(handle_, registration.memory, registration.bytes, &registration_),
           "ncclCommRegister");
  } catch (const Error& error) {
    failure_ = error;
    abort();
    throw;
  }
}

void NcclCommunicator::connect(Communicator& world) {
  ncclUniqueId id{};
  if (rank_ == 0) {
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  }
  world.broadcast(std::as_writable_bytes(std::span(id.internal)), 0);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // so that ranks that never come are noticed
  ncclResult_t result = ncclCommInitRankConfig(&handle_, size_, id, rank_, &config);
  if (!ends_in_time(result)) {
    fail(Error(ExitCode::kUnavailable,
               "NCCL did not connect ranks 0 to " + std::to_string(size_ - 1) + " within " +
                   std::to_string(timeout_.count()) + " s: rank " + std::to_string(rank_) +
                   " still waits for others. Interfaces here: " + interfaces() + ". " +
                   variable("NCCL_SOCKET_IFNAME") + " (it names the interface to use), " +
                   variable("NCCL_DEBUG") + " (INFO shows what NCCL tries)"));
  }
  check(result, "ncclCommInitRankConfig");
}

// Collective where all is well. While an error is under way other ranks may be elsewhere.
NcclCommunicator::~NcclCommunicator() {
  if (handle_ == nullptr) {
    return;
  }
  if (failure_ || std::uncaught_exceptions() > 0) {
    abort();
    return;
  }
  cudaDeviceSynchronize();  // the last sums may still use what is registered
  if (registration_ != nullptr) {
    ncclCommDeregister(handle_, registration_);
  }
  try {
    settle(ncclCommFinalize(handle_), "ncclCommFinalize");
    ncclCommDestroy(handle_);
  } catch (const Error&) {
    abort();  // a rank that has gone without a word would keep the others waiting
  }
}

bool NcclCommunicator::ends_in_time(ncclResult_t& result) {
  const Stopwatch waited;
  while (result == ncclInProgress) {
    if (waited.seconds() > static_cast<double>(timeout_.count())) {
      return false;
    }
    std::this_thread::yield();
    check(ncclCommGetAsyncError(handle_, &result), "ncclCommGetAsyncError");
  }
  return true;
}

void NcclCommunicator::settle(ncclResult_t result, const char* call) {
  if (!ends_in_time(result)) {
    fail(Error(ExitCode::kUnavailable, std::string(call) + " has not ended after " +
                                           std::to_string(timeout_.count()) + " s (--comm-timeout)"));
  }
  check(result, call);
}

void NcclCommunicator::fail(const Error& error) {
  failure_ = error;
  throw Error(error);
}

// NCCL's own abort has been seen to hang with ranks that have died. The process then ends without more ado:
// exit handlers and destructors would wait for the GPU, which waits for those ranks.
void NcclCommunicator::abort() {
  if (handle_ == nullptr) {
    return;
  }
  std::promise<void> ended;
  const auto end = ended.get_future();
  std::thread([handle = std::exchange(handle_, nullptr), ended = std::move(ended)]() mutable {
    ncclCommAbort(handle);
    ended.set_value();
  }).detach();
  if (end.wait_for(kAbortTimeout) == std::future_status::ready) {
    return;
  }
  std::cerr << "convnet: rank " + std::to_string(rank_) + ": " +
                   (failure_ ? failure_->what() : "an error ends this rank") +
                   "; and ncclCommAbort has not ended after " + std::to_string(kAbortTimeout.count()) + " s\n"
            << std::flush;
  std::_Exit(static_cast<int>(failure_ ? failure_->code() : ExitCode::kInternal));
}

void NcclCommunicator::wait(cudaEvent_t event) {
  const Stopwatch waited;
  cudaError_t status = cudaEventQuery(event);
  while (status == cudaErrorNotReady) {
    ncclResult_t result = ncclSuccess;
    check(ncclCommGetAsyncError(handle_, &result), "ncclCommGetAsyncError");
    if (result != ncclSuccess && result != ncclInProgress) {
      fail(Error(ExitCode::kInternal, "NCCL failed on the way: " + std::string(ncclGetErrorString(result)) +
                                          " (" + ncclGetLastError(handle_) + ")"));
    }
    if (waited.seconds() > static_cast<double>(timeout_.count())) {
      fail(Error(ExitCode::kUnavailable,
                 "rank " + std::to_string(rank_) + " has waited " + std::to_string(timeout_.count()) +
                     " s in NCCL's all-reduce (--comm-timeout): another rank has ended or hangs"));
    }
    std::this_thread::yield();
    status = cudaEventQuery(event);
  }
  check(status, "cudaEventQuery");
}

void NcclCommunicator::all_reduce_sum(float* values, std::size_t count) {
  settle(ncclAllReduce(values, values, count, ncclFloat32, ncclSum, handle_, stream()), "ncclAllReduce");
}

void NcclCommunicator::all_reduce_sum(double* values, std::size_t count) {
  settle(ncclAllReduce(values, values, count, ncclFloat64, ncclSum, handle_, stream()), "ncclAllReduce");
}

std::unique_ptr<DeviceCommunicator> make_device_communicator(Communicator& world, const CudaOptions& options,
                                                             const Registration& registration) {
  if (options.comm == CommLibrary::kMpi) {
    const bool has_groups = options.steps_per_launch > 1;
    if (options.graph == CudaGraph::kOn || has_groups) {
      throw Error(ExitCode::kUsage,
                  std::string(has_groups ? "--steps-per-launch above 1" : "--cuda-graph on") +
                      ": sums by way of the host (--comm mpi) cannot be captured")
          .on_every_rank();
    }
    return std::make_unique<StagedCommunicator>(world);
  }
  return std::make_unique<NcclCommunicator>(world, std::chrono::seconds(options.comm_timeout), registration);
}

}  // namespace convnet::cuda
