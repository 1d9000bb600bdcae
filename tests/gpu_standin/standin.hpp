#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

// The stand-in for a GPU: what its parts (runtime, cuDNN, cuBLAS, NCCL) share, and what tests steer it with.
// Everything runs on the one host thread that calls: work is only queued, and is done when the host waits for
// it, in an order that only streams, events and waits of the host restrict.

namespace standin {

// --- For the parts: every entry point of a library
// ------------------------------------------------------------

// Counts a call of an entry point, and tells whether it is to fail instead of doing its work. The first thing
// that every entry point does.
bool must_fail(const char* call);

// Ends the program (std::abort, after one line "gpu stand-in: TEXT" on stderr): the plug-in did what a GPU
// would not forgive.
[[noreturn]] void violation(const std::string& text);

// Bytes that a piece of work reads or writes.
struct Range {
  const void* first = nullptr;
  std::size_t bytes = 0;
  bool is_written = false;
};

// Queues work on a stream (0: the default stream, which is a violation: the plug-in must use its own). While
// the stream is captured the work becomes a node of the graph. Each range must lie within one live allocation
// of device memory or of pinned host memory, or it is a violation naming `what`.
void enqueue(cudaStream_t stream, const std::string& what, std::vector<Range> ranges,
             std::function<void()> work);

// A violation if any stream is being captured: for calls that synchronise or allocate (`call` names it).
void forbid_while_capturing(const char* call);
bool is_capturing(cudaStream_t stream);

// True if the bytes lie within one live allocation of device memory.
bool is_device_memory(const void* first, std::size_t bytes);

// Counts live objects, so that what is never destroyed is found; destroying what does not live is a violation
// (`kind` is for example "cudnnHandle_t").
void object_made(const char* kind, const void* object);
void object_gone(const char* kind, const void* object);
// A violation unless the object lives. `call` names who asks.
void require_object(const char* kind, const void* object, const char* call);

// --- For tests
// ------------------------------------------------------------------------------------------------

// How often each entry point was called, by name.
const std::map<std::string, long>& calls();

// How often each piece of work was queued, by name: kernels, copies, and what the libraries' entry points do.
// A captured piece counts whenever its graph is launched.
const std::map<std::string, long>& work();

// Makes the nth call (1: the next) of an entry point fail, once. Also by the environment variable
// CONVNET_STANDIN_FAIL="name:n", read at the first call.
void fail(const std::string& call, long nth);

// From now on an entry point that starts something never finishes it: ncclCommInitRankConfig stays in
// progress; ncclAllReduce's work, and all that comes after it, is never done, so that a query of it goes on
// saying cudaErrorNotReady. Also by CONVNET_STANDIN_STALL="name".
void stall(const std::string& call);
bool is_stalled(const char* call);
// Lets stalled work go on: what ncclCommAbort does to the kernels of its communicator.
void end_stall(const std::string& call);

// The order in which unordered work, blocks, and threads of a block take turns: tests run both. Also by
// CONVNET_STANDIN_ORDER="backward".
enum class Order { kForward, kBackward };
void set_order(Order order);
Order order();

// What lives: kind -> count, device and pinned memory ("device memory", "pinned memory") included.
std::map<std::string, long> live_objects();

}  // namespace standin
