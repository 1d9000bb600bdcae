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

// The training step of the CPU back end as the trainer runs it, in its three parts, which take turns in this
// order. It goes through a rank's full batches of the first epoch again and again.
class TrainingStep {
 public:
  // Throws Error (kUsage) if a rank has fewer images than a batch. All ranks call it together; `dataset` and
  // `world` must outlive it.
  TrainingStep(const Dataset& dataset, const Network& network, int batch, int threads,
               MpiCommunicator& world);

  std::span<const std::int32_t> rows() const { return std::span(rows_).subspan(next_, batch_); }

  void forward_backward() { replica_->forward_backward(rows(), scale_); }
  void all_reduce() { replica_->all_reduce_gradients(world_); }
  void update();  // and goes on to the next batch

  // Throws Error (kData) if the last loss is not finite: then what was timed is no training.
  void require_finite();

 private:
  MpiCommunicator& world_;
  std::size_t batch_;
  float scale_;
  std::vector<std::int32_t> rows_;  // of the epoch
  std::size_t next_ = 0;
  std::unique_ptr<Replica> replica_;
  UpdateRule rule_;
};

}  // namespace convnet
