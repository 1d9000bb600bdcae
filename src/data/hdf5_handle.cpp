#include "data/hdf5_handle.hpp"

#include <algorithm>

namespace convnet {

std::string hdf5_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

void silence_hdf5() {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

void throw_hdf5_error(const std::string& what, std::source_location where) {
  struct Innermost {
    std::string text = "HDF5 gives no reason";
    bool is_io = false;
  } innermost;
  const auto take_first = [](unsigned depth, const H5E_error2_t* error, void* taken) -> herr_t {
    if (depth == 0) {
      *static_cast<Innermost*>(taken) = {error->desc, error->maj_num == H5E_IO};
    }
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &innermost);
  std::ranges::replace(innermost.text, '\n', ' ');
  throw Error(innermost.is_io ? ExitCode::kIo : ExitCode::kData, what + ": " + innermost.text, where);
}

}  // namespace convnet
