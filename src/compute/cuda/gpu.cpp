#include "compute/cuda/gpu.hpp"

#include <cstdlib>
#include <string>
#include <string_view>

#include "compute/cuda/check.hpp"
#include "compute/cuda/flat_kernels.hpp"
#include "convnet/error.hpp"

namespace convnet::cuda {
namespace {

Error unavailable(const std::string& text) {
  return {ExitCode::kUnavailable, text};
}

// "12.4" of 12040.
std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// "2.28.3" of 22803.
std::string dotted(int number) {
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

Error driver_error() {
  int driver = 0;
  int runtime = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  if (driver == 0) {
    return unavailable("no NVIDIA driver is installed here");
  }
  return unavailable("the NVIDIA driver is too old: it supports CUDA " + cuda_version(driver) +
                     ", and this program needs CUDA " + cuda_version(runtime));
}

int visible_gpus() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaErrorInsufficientDriver) {
    throw driver_error();
  }
  if (result == cudaErrorNoDevice || (result == cudaSuccess && count == 0)) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    throw unavailable(
        "no GPU is visible" +
        (visible == nullptr ? std::string() : " (CUDA_VISIBLE_DEVICES is \"" + std::string(visible) + "\")"));
  }
  check(result, "cudaGetDeviceCount");
  return count;
}

void require_code_for(const cudaDeviceProp& properties) {
  const cudaError_t result = probe_code();
  if (result == cudaErrorNoKernelImageForDevice || result == cudaErrorInvalidDeviceFunction) {
    throw unavailable(std::string(properties.name) + " has compute capability " +
                      std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                      ", for which this program has no code: it was built for " CONVNET_CUDA_ARCHITECTURES
                      " (CMAKE_CUDA_ARCHITECTURES sets them)");
  }
  if (result == cudaErrorUnsupportedPtxVersion) {
    throw unavailable("the NVIDIA driver is too old to compile this program's code for " +
                      std::string(properties.name));
  }
  check(result, "cudaFuncGetAttributes");
}

// As nvidia-smi prints it: GPU- and groups of 8, 4, 4, 4 and 12 digits.
std::string uuid_text(const cudaUUID_t& uuid) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "GPU-";
  for (const char byte : uuid.bytes) {
    const auto value = static_cast<unsigned char>(byte);
    if (text.size() == 12 || text.size() == 17 || text.size() == 22 || text.size() == 27) {
      text += '-';
    }
    text += kDigits[value / 16];
    text += kDigits[value % 16];
  }
  return text;
}

// Within a major version a library may be newer than the one compiled with, but not older.
void require_at_least(const char* library, int loaded, int compiled) {
  if (loaded < compiled) {
    throw unavailable(std::string("the ") + library + " library loaded has version " + dotted(loaded) +
                      ": expected at least " + dotted(compiled) + ", which this program was compiled with");
  }
}

std::string libraries() {
  int runtime = 0;
  int nccl = 0;
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  check(ncclGetVersion(&nccl), "ncclGetVersion");
  const auto cudnn = static_cast<int>(cudnnGetVersion());
  require_at_least("cuDNN", cudnn, CUDNN_VERSION);
  require_at_least("NCCL", nccl, NCCL_VERSION_CODE);
  return "CUDA " + cuda_version(runtime) + ", cuDNN " + dotted(cudnn) + ", NCCL " + dotted(nccl);
}

}  // namespace

GpuFacts open_gpu(int local_rank) {
  GpuFacts facts;
  facts.visible = visible_gpus();
  facts.index = local_rank % facts.visible;
  check(cudaSetDevice(facts.index), "cudaSetDevice");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, facts.index), "cudaGetDeviceProperties");
  require_code_for(properties);
  facts.name = properties.name;
  facts.uuid = uuid_text(properties.uuid);
  facts.libraries = libraries();
  return facts;
}

}  // namespace convnet::cuda
