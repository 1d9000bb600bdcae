#pragma once

#include <utility>

#include "compute/cuda/check.hpp"

namespace convnet::cuda {

// A library's handle, destroyed with its owner. What a destruction says is not heard: it comes too late, or
// while an error is under way.
template <class Handle, auto destroy>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  ~Owned() {
    if (handle_ != nullptr) {
      destroy(handle_);
    }
  }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  Handle handle_ = nullptr;
};

// Calls a library's function that makes a handle: make_handle<Stream>("cudaStreamCreate", cudaStreamCreate).
template <class Owner, class Create, class... Arguments>
Owner make_handle(const char* call, Create create, Arguments... arguments) {
  auto handle = Owner().get();
  check(create(&handle, arguments...), call);
  return Owner(handle);
}

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using ExecutableGraph = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;
using CudnnHandle = Owned<cudnnHandle_t, cudnnDestroy>;
using CublasHandle = Owned<cublasHandle_t, cublasDestroy_v2>;

// A stream that never waits for the default stream.
inline Stream make_stream() {
  return make_handle<Stream>("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags,
                             unsigned{cudaStreamNonBlocking});
}

// An event that only orders streams, and keeps no time.
inline Event make_event() {
  return make_handle<Event>("cudaEventCreateWithFlags",
                            static_cast<cudaError_t (*)(cudaEvent_t*, unsigned)>(cudaEventCreateWithFlags),
                            unsigned{cudaEventDisableTiming});
}

// What `later` gets from now on runs after what `earlier` has now.
inline void order(cudaStream_t earlier, cudaEvent_t event, cudaStream_t later) {
  check(cudaEventRecord(event, earlier), "cudaEventRecord");
  check(cudaStreamWaitEvent(later, event, 0), "cudaStreamWaitEvent");
}

}  // namespace convnet::cuda
