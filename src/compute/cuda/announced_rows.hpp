#pragma once

#include <span>

#include "compute/cuda/transfer.hpp"

namespace convnet::cuda {

// The rows of an epoch's steps, on the device beforehand.
class AnnouncedRows {
 public:
  void set(cudaStream_t stream, std::span<const std::int32_t> rows) {
    announced_ = rows;
    on_device_.set(stream, rows);
  }

  // Where a step's rows lie on the device; null unless they are part of those announced.
  const std::int32_t* find(std::span<const std::int32_t> rows) const {
    const bool is_part = !rows.empty() && !announced_.empty() && rows.data() >= announced_.data() &&
                         rows.data() + rows.size() <= announced_.data() + announced_.size();
    return is_part ? on_device_.data() + (rows.data() - announced_.data()) : nullptr;
  }

 private:
  std::span<const std::int32_t> announced_;  // the host's
  RowList on_device_;
};

}  // namespace convnet::cuda
