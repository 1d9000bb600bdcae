#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/mpi_communicator.hpp"
#include "compute/replica.hpp"
#include "convnet/dataset.hpp"
#include "convnet/network.hpp"

namespace convnet {

// The trainer's step on the CPU, over and over, on one full batch of this rank's samples after the other.
class Training {
 public:
  // `batch` samples and `threads` a rank. Throws Error (kUsage) if a rank has fewer samples. All ranks call
  // it together; `dataset` and `world` must outlive it.
  Training(const Dataset& dataset, const Network& network, int batch, int threads, MpiCommunicator& world);

  // The samples of the coming step.
  std::span<const std::int32_t> rows() const { return std::span(rows_).subspan(next_, batch_); }

  void step();
  void run(int steps);

  // Throws Error (kData) if the last loss is not finite: then what was measured is no training.
  void require_finite();

  // Seconds of a step's parts, of all steps since they were asked for last.
  struct Parts {
    double forward_backward = 0.0;
    double all_reduce = 0.0;  // with the wait for the slowest rank
    double update = 0.0;
  };
  Parts take_seconds();

 private:
  MpiCommunicator& world_;
  std::size_t batch_;
  float scale_;
  std::vector<std::int32_t> rows_;  // of the epoch
  std::size_t next_ = 0;
  std::unique_ptr<Replica> replica_;
  UpdateRule rule_;
  Parts seconds_;
};

}  // namespace convnet
