#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/capture.hpp"
#include "runtime/memory.hpp"
#include "runtime/result.hpp"

// What devices there are, as environment variables say, and what can be asked about them.

namespace standin {
namespace {

constexpr int kMultiprocessors = 16;
constexpr int kWarp = 32;
constexpr int kThreadsOfBlock = 1024;
constexpr int kOldestCapability = 80;  // below it the program has no kernels

struct Devices {
  std::vector<int> visible;  // physical indices
  int driver = 0;
  int capability = 0;  // 90 for 9.0
  int current = 0;
};

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

// As the real runtime reads it: a list that ends at the first entry that is no device.
std::vector<int> visible_devices(int count) {
  std::vector<int> visible;
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    for (int i = 0; i < count; ++i) {
      visible.push_back(i);
    }
    return visible;
  }
  const std::string_view text = list;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    int index = -1;
    std::from_chars(text.data() + begin, text.data() + end, index);
    if (index < 0 || index >= count || std::ranges::find(visible, index) != visible.end()) {
      break;
    }
    visible.push_back(index);
    begin = end + 1;
  }
  return visible;
}

Devices read_devices() {
  constexpr int kDriver = 13000;
  Devices devices;
  devices.visible = visible_devices(number_from("CONVNET_STANDIN_DEVICES", 1));
  devices.driver = number_from("CONVNET_STANDIN_DRIVER", kDriver);
  const char* capability = std::getenv("CONVNET_STANDIN_CAPABILITY");
  const std::string text = capability == nullptr ? "9.0" : capability;
  const std::size_t dot = text.find('.');
  devices.capability = std::atoi(text.c_str()) * 10;
  devices.capability += dot == std::string::npos ? 0 : std::atoi(text.c_str() + dot + 1);
  return devices;
}

Devices& devices() {
  static Devices only = read_devices();
  return only;
}

bool is_device(int device) {
  return device >= 0 && device < static_cast<int>(devices().visible.size());
}

// The same on each rank of a host, different on each host and for each device of it.
cudaUUID_t uuid_of(int device) {
  constexpr std::uint64_t kOffset = 14695981039346656037U;  // FNV-1a
  constexpr std::uint64_t kPrime = 1099511628211U;
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  cudaUUID_t uuid{};
  std::uint64_t hash = kOffset;
  const std::string text =
      std::string(host.data()) + ":" + std::to_string(devices().visible[static_cast<std::size_t>(device)]);
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    for (const char c : text) {
      hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
    }
    uuid.bytes[i] = static_cast<char>(hash >> 56U);
  }
  return uuid;
}

void describe(int device, cudaDeviceProp& properties) {
  constexpr std::size_t kShared = std::size_t{48} << 10;
  constexpr int kMostBlocks = 65535;
  properties = {};
  std::snprintf(properties.name, sizeof(properties.name), "GPU stand-in (no GPU)");
  properties.uuid = uuid_of(device);
  properties.totalGlobalMem = device_bytes();
  properties.major = devices().capability / 10;
  properties.minor = devices().capability % 10;
  properties.multiProcessorCount = kMultiprocessors;
  properties.warpSize = kWarp;
  properties.maxThreadsPerBlock = kThreadsOfBlock;
  properties.maxThreadsPerMultiProcessor = 2 * kThreadsOfBlock;
  properties.sharedMemPerBlock = kShared;
  properties.sharedMemPerMultiprocessor = 2 * kShared;
  properties.regsPerBlock = kMostBlocks + 1;
  properties.pciBusID = devices().visible[static_cast<std::size_t>(device)] + 1;
  properties.concurrentKernels = 1;
  properties.asyncEngineCount = 2;
  std::ranges::copy(std::array{kThreadsOfBlock, kThreadsOfBlock, 64}, properties.maxThreadsDim);
  std::ranges::copy(std::array{0x7FFFFFFF, kMostBlocks, kMostBlocks}, properties.maxGridSize);
}

int attribute(cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties{};
  describe(device, properties);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      return properties.maxThreadsPerBlock;
    case cudaDevAttrWarpSize:
      return properties.warpSize;
    case cudaDevAttrMultiProcessorCount:
      return properties.multiProcessorCount;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return static_cast<int>(properties.sharedMemPerBlock);
    case cudaDevAttrComputeCapabilityMajor:
      return properties.major;
    case cudaDevAttrComputeCapabilityMinor:
      return properties.minor;
    case cudaDevAttrPciBusId:
      return properties.pciBusID;
    case cudaDevAttrUnifiedAddressing:
      return 1;
    default:
      violation("cudaDeviceGetAttribute: the stand-in does not know attribute " + std::to_string(attribute));
  }
}

}  // namespace

cudaError_t device_state() {
  if (devices().driver < CUDART_VERSION) {
    return cudaErrorInsufficientDriver;
  }
  return devices().visible.empty() ? cudaErrorNoDevice : cudaSuccess;
}

bool has_kernel_image() {
  return devices().capability >= kOldestCapability;
}

}  // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (must_fail("cudaGetDeviceCount")) {
    return finish(cudaErrorUnknown);
  }
  const cudaError_t state = device_state();
  *count = state == cudaSuccess ? static_cast<int>(devices().visible.size()) : 0;
  return finish(state);
}

cudaError_t cudaGetDevice(int* device) {
  if (must_fail("cudaGetDevice")) {
    return finish(cudaErrorUnknown);
  }
  *device = devices().current;
  return finish(device_state());
}

cudaError_t cudaSetDevice(int device) {
  if (must_fail("cudaSetDevice")) {
    return finish(cudaErrorUnknown);
  }
  if (device_state() == cudaSuccess && !is_device(device)) {
    return finish(cudaErrorInvalidDevice);
  }
  devices().current = device;
  return finish(device_state());
}

// CUDA 12 gives this name a suffix by a macro.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (must_fail("cudaGetDeviceProperties")) {
    return finish(cudaErrorUnknown);
  }
  if (device_state() != cudaSuccess || !is_device(device)) {
    return finish(device_state() != cudaSuccess ? device_state() : cudaErrorInvalidDevice);
  }
  describe(device, *properties);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  if (must_fail("cudaDeviceGetAttribute")) {
    return finish(cudaErrorUnknown);
  }
  if (device_state() != cudaSuccess || !is_device(device)) {
    return finish(device_state() != cudaSuccess ? device_state() : cudaErrorInvalidDevice);
  }
  *value = attribute(which, device);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  if (must_fail("cudaDriverGetVersion")) {
    return finish(cudaErrorUnknown);
  }
  *version = std::max(devices().driver, 0);
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (must_fail("cudaRuntimeGetVersion")) {
    return finish(cudaErrorUnknown);
  }
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  if (must_fail("cudaFuncGetAttributes")) {
    return finish(cudaErrorUnknown);
  }
  if (device_state() != cudaSuccess || !has_kernel_image()) {
    return finish(device_state() != cudaSuccess ? device_state() : cudaErrorNoKernelImageForDevice);
  }
  *attributes = {};
  attributes->maxThreadsPerBlock = kThreadsOfBlock;
  attributes->binaryVersion = devices().capability;
  attributes->ptxVersion = devices().capability;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (must_fail("cudaDeviceSynchronize")) {
    return finish(cudaErrorUnknown);
  }
  if (const cudaError_t refused = refuse_while_capturing(); refused != cudaSuccess) {
    return finish(refused);
  }
  wait_for_device("cudaDeviceSynchronize");
  return finish(device_state());
}

cudaError_t cudaProfilerStart() {
  return finish(must_fail("cudaProfilerStart") ? cudaErrorUnknown : cudaSuccess);
}

cudaError_t cudaProfilerStop() {
  return finish(must_fail("cudaProfilerStop") ? cudaErrorUnknown : cudaSuccess);
}

}  // extern "C"
