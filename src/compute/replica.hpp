#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/cuda_options.hpp"
#include "compute/update_rule.hpp"
#include "convnet/communicator.hpp"
#include "convnet/dataset.hpp"
#include "convnet/model_state.hpp"
#include "convnet/network.hpp"

namespace convnet {

// Sums over the samples of one step.
struct StepResult {
  double local_loss_sum = 0.0;  // over this rank's samples
  double loss_sum = 0.0;        // over the samples of all ranks
  std::int64_t correct = 0;     // predictions of all ranks that were right
  bool finite = true;           // loss and gradient, on all ranks alike
};

// Sums over the rows that a rank evaluated.
struct EvalResult {
  double loss_sum = 0.0;
  std::int64_t correct = 0;
};

// One rank's copy of the network and all that it needs to train: the seam between the trainer and the back
// ends. A step is forward_backward, all_reduce_gradients, update; a back end may only enqueue them, and
// result() waits.
//
// Gradients are sums over samples times gradient_scale. With scale = 1 / (samples of all ranks in the step)
// their sum over ranks is the gradient of the mean loss, exact also where ranks have different numbers of
// samples; a back end may tell from it that they have equally many.
class Replica {
 public:
  virtual ~Replica() = default;

  // Makes the data set usable by row number. Must come first. The data set outlives the replica.
  virtual void load(const Dataset& dataset) = 0;

  // Says which rows the coming steps take, in this order: steps whose rows lie in this span find them on the
  // device already. The span outlives those steps. No other rows are forbidden.
  virtual void announce_rows(std::span<const std::int32_t> /*rows*/) {}

  // Forward and backward over training rows: at most `max_batch` of them; none is allowed and gives zeros.
  virtual void forward_backward(std::span<const std::int32_t> rows, float gradient_scale) = 0;

  // Sums gradients, loss and correct predictions over the ranks.
  virtual void all_reduce_gradients(Communicator& communicator) = 0;

  // Changes the parameters. Once a step's loss or gradient was not finite, nothing changes any more and
  // result() says so, until write_state: the steps that the state counts tell which one it was. With
  // ReplicaOptions::skip_nonfinite that step alone changes nothing, not even running statistics.
  virtual void update(const UpdateRule& rule) = 0;

  // What the last step gave, valid after all_reduce_gradients.
  virtual StepResult result() = 0;

  // Forward over test rows with the running statistics; any number of rows.
  virtual EvalResult evaluate(std::span<const std::int32_t> rows) = 0;

  virtual ModelState read_state() = 0;
  virtual void write_state(const ModelState& state) = 0;

  // The gradient of the last step, as the parameters lie in ModelState.
  virtual std::vector<float> read_gradients() = 0;
};

struct ReplicaOptions {
  Network network;
  int max_batch = 100;  // largest number of rows in a step of this rank, >= 1
  int threads = 1;      // of the CPU back end, >= 1
  // Where given, batch norm takes its statistics over the batches of all ranks of this communicator, which
  // outlives the replica; forward_backward is then collective.
  Communicator* batch_norm_communicator = nullptr;
  bool skip_nonfinite = false;
  CudaOptions cuda = {};  // of the CUDA back end
};

}  // namespace convnet
