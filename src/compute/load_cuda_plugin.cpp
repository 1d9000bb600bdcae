#include "compute/load_cuda_plugin.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "convnet/error.hpp"

namespace convnet {
namespace {

Error unavailable(const std::string& text) {
  return {ExitCode::kUnavailable, text};
}

// The libraries take seconds to load: where there is no driver they need not.
void require_driver() {
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    throw unavailable(std::string("no NVIDIA driver could be loaded: ") + dlerror());
  }
}

CudaPluginFunction* open_plugin(const std::filesystem::path& path) {
  // Never closed: code of the plug-in runs until the process ends.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    throw unavailable("the CUDA back end cannot be loaded: " + std::string(dlerror()) +
                      " (where it is a library that was not found, LD_LIBRARY_PATH must name its folder)");
  }
  void* const function = dlsym(library, "convnet_cuda_plugin");
  if (function == nullptr) {
    throw unavailable(path.string() + " is no CUDA back end of this program: it has no convnet_cuda_plugin");
  }
  return reinterpret_cast<CudaPluginFunction*>(function);
}

}  // namespace

const CudaPlugin& load_cuda_plugin() {
  const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libconvnet_cuda.so";
  if (!std::filesystem::exists(path)) {
    throw unavailable("this program was built without the CUDA back end");
  }
  require_driver();
  const CudaPlugin& plugin = *open_plugin(path)();
  if (plugin.version != std::string(CONVNET_VERSION)) {
    throw unavailable(path.string() + " belongs to convnet " + plugin.version +
                      ": expected " CONVNET_VERSION);
  }
  return plugin;
}

}  // namespace convnet
