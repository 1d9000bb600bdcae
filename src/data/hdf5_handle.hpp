#pragma once

#include <hdf5.h>

#include <concepts>
#include <source_location>
#include <string>
#include <utility>

#include "convnet/error.hpp"

namespace convnet {

// An HDF5 identifier, closed at the end of its life.
template <herr_t (*close)(hid_t)>
class Hdf5Handle {
 public:
  Hdf5Handle() = default;
  explicit Hdf5Handle(hid_t id) : id_(id) {}
  ~Hdf5Handle() {
    if (id_ >= 0) {
      close(id_);
    }
  }
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;

  hid_t get() const { return id_; }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

using Hdf5File = Hdf5Handle<H5Fclose>;
using Hdf5Group = Hdf5Handle<H5Gclose>;
using Hdf5DataSet = Hdf5Handle<H5Dclose>;
using Hdf5Attribute = Hdf5Handle<H5Aclose>;
using Hdf5Space = Hdf5Handle<H5Sclose>;
using Hdf5Type = Hdf5Handle<H5Tclose>;
using Hdf5Properties = Hdf5Handle<H5Pclose>;

// "1.10.8", of the library that is loaded.
std::string hdf5_version();

// Keeps HDF5 from printing its errors itself. Call it before HDF5's first call that may fail.
void silence_hdf5();

// Throws Error with `what` ("FILE: cannot read /train/images") and the innermost text of HDF5's error stack:
// kIo if the operating system failed to read or write, else kData.
[[noreturn]] void throw_hdf5_error(const std::string& what, std::source_location where);

// Passes on the result of an HDF5 call (hid_t, herr_t, htri_t, ...), or throws if it says that the call
// failed. Its name is not check(), which is MPI's: both results are an int.
template <std::signed_integral Result>
Result check_hdf5(Result result, const std::string& what,
                  std::source_location where = std::source_location::current()) {
  if (result < 0) {
    throw_hdf5_error(what, where);
  }
  return result;
}

}  // namespace convnet
