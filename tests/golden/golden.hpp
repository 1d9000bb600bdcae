#pragma once

#include <hdf5.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "convnet/model_state.hpp"

namespace convnet {

// One of the files of tests/golden, which hold what PyTorch computed (README.md there), opened for reading.
// Whatever is missing or unreadable throws std::runtime_error.
class GoldenFile {
 public:
  // `name` is, for example, "seed_world1.h5".
  explicit GoldenFile(const std::string& name)
      : file_(H5Fopen((CONVNET_SOURCE_DIR "/tests/golden/" + name).c_str(), H5F_ACC_RDONLY, H5P_DEFAULT),
              H5Fclose, name) {}

  // A whole data set, row by row.
  std::vector<float> floats(const std::string& path) const { return read<float>(path, H5T_NATIVE_FLOAT); }
  std::vector<double> doubles(const std::string& path) const { return read<double>(path, H5T_NATIVE_DOUBLE); }
  std::vector<std::int32_t> integers(const std::string& path) const {
    return read<std::int32_t>(path, H5T_NATIVE_INT32);
  }

  // A number attached to an object, for example "correct" of "/test/epoch_0" or "lr" of "/".
  double attribute(const std::string& object, const std::string& name) const {
    const Handle handle(H5Aopen_by_name(file_.id(), object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
                        H5Aclose, object + " " + name);
    double value = 0.0;
    require(H5Aread(handle.id(), H5T_NATIVE_DOUBLE, &value), object + " " + name);
    return value;
  }

  // All parameters of a group like "/init" or "/grad_step_1", flat, as ModelState has them.
  std::vector<float> parameters(const std::string& group, const StateLayout& layout) const {
    return flat(group, layout, true);
  }

  // A whole state without moments, from a group like "/init" or "/state_step_10".
  ModelState state(const std::string& group, const StateLayout& layout) const {
    return {flat(group, layout, true),
            flat(group, layout, false),
            {},
            integers(group + "/layer1.1.num_batches_tracked").front()};
  }

 private:
  static void require(std::int64_t result, const std::string& what) {
    if (result < 0) {
      throw std::runtime_error("golden file: cannot read " + what);
    }
  }

  class Handle {
   public:
    Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what) : id_(id), close_(close) {
      require(id, what);
    }
    ~Handle() { close_(id_); }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    hid_t id() const { return id_; }

   private:
    hid_t id_;
    herr_t (*close_)(hid_t);
  };

  template <typename Value>
  std::vector<Value> read(const std::string& path, hid_t type) const {
    const Handle set(H5Dopen2(file_.id(), path.c_str(), H5P_DEFAULT), H5Dclose, path);
    const Handle space(H5Dget_space(set.id()), H5Sclose, path);
    std::vector<Value> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.id())));
    require(H5Dread(set.id(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), path);
    return values;
  }

  std::vector<float> flat(const std::string& group, const StateLayout& layout, bool is_parameter) const {
    std::vector<float> all;
    for (const TensorInfo& tensor : layout.tensors()) {
      if (tensor.is_parameter == is_parameter) {
        const std::vector<float> values = floats(group + "/" + tensor.name);
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    return all;
  }

  Handle file_;
};

}  // namespace convnet
