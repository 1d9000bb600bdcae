#include "compute/cuda/cuda_replica.hpp"

#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "compute/cuda/announced_rows.hpp"
#include "compute/cuda/device_communicator.hpp"
#include "compute/cuda/device_network.hpp"
#include "compute/cuda/device_state.hpp"
#include "compute/cuda/flat_kernels.hpp"
#include "compute/cuda/gather.hpp"
#include "compute/cuda/gradient_buckets.hpp"
#include "compute/cuda/loaded_split.hpp"
#include "compute/cuda/step_graphs.hpp"
#include "compute/cuda/step_pace.hpp"
#include "compute/cuda/transfer.hpp"
#include "convnet/error.hpp"

namespace convnet::cuda {
namespace {

constexpr std::size_t kTail = 2;  // behind the gradients: the step's loss sum and its correct predictions

// T is the type of activations. A step is only noted down until it is complete, so that all of it can be one
// launch of a captured graph; and complete steps wait until there are as many as one launch takes. Whatever
// asks for results before has all that was noted down queued: then complete steps go one by one.
template <class T>
class CudaReplica final : public Replica {
 public:
  explicit CudaReplica(const ReplicaOptions& options);

  void load(const Dataset& dataset) override;
  void announce_rows(std::span<const std::int32_t> rows) override;
  void forward_backward(std::span<const std::int32_t> rows, float gradient_scale) override;
  void all_reduce_gradients(Communicator& communicator) override;
  void update(const UpdateRule& rule) override;
  StepResult result() override;
  EvalResult evaluate(std::span<const std::int32_t> rows) override;
  ModelState read_state() override;
  void write_state(const ModelState& state) override;
  std::vector<float> read_gradients() override;

 private:
  // What has been asked for of a step that is not complete, and not been queued yet.
  struct Due {
    bool step = false;
    bool sum = false;  // over the ranks
    int batch = 0;
    StepRecord record;
  };

  cudaStream_t stream() const { return context_.stream.get(); }
  float* tail() const { return gradients_.data() + layout_.parameter_size(); }
  void connect(Communicator& communicator);
  bool is_captured() const;

  void queue_due();
  void update_by_itself(const StepKind& kind);
  void launch_waiting();
  void launch(std::span<const StepRecord> steps);
  void keep_pace();
  void take_batch(const LoadedSplit& split, int batch, const StepRecord* record);
  void queue_step(int batch, bool with_sum, const StepRecord* record);
  void queue_sum(std::size_t layer);
  void finish_sums();

  void wait(cudaEvent_t event);
  void wait();
  template <class Value>
  std::vector<Value> download(const Value* values, std::size_t count);

  Network network_;
  int max_batch_;
  Communicator* batch_norm_world_;
  Context context_;
  DeviceLayout layout_;
  std::vector<GradientBucket> buckets_;
  DeviceState state_;
  NcclArray<float> gradients_;       // of all parameters, then the tail
  DeviceArray<StepRecord> records_;  // of the steps of a launch; all else takes the first
  DeviceArray<Score> score_;
  PinnedArray<std::byte> staging_;  // for what is downloaded: at most all parameters, or the score
  DeviceNetwork<T> device_network_;
  std::unique_ptr<LoadedSplit> train_;
  std::unique_ptr<LoadedSplit> test_;
  AnnouncedRows announced_rows_;
  RowList other_rows_;
  Communicator* world_ = nullptr;
  std::unique_ptr<DeviceCommunicator> communicator_;  // where there is more than one rank
  StepGraphs graphs_;  // behind the communicator, whose sums they hold: so they go first, as NCCL wants it
  Due due_;
  std::vector<StepRecord> waiting_;  // complete steps, all of one kind, fewer than a launch takes
  StepKind waiting_kind_;            // but for their number
  StepPace pace_;
  Event all_done_;
};

template <class T>
CudaReplica<T>::CudaReplica(const ReplicaOptions& options)
    : network_(options.network),
      max_batch_(options.max_batch),
      batch_norm_world_(options.batch_norm_communicator),
      context_(options.cuda),
      layout_(StateLayout(options.network)),
      buckets_(gradient_buckets(network_, layout_, options.cuda.buckets, kTail)),
      state_(layout_, options.skip_nonfinite),
      gradients_(layout_.parameter_size() + kTail),
      records_(static_cast<std::size_t>(options.cuda.steps_per_launch)),
      score_(1),
      staging_(std::max(state_.parameter_bytes(), sizeof(Score))),
      device_network_(context_, network_, max_batch_, layout_,
                      {state_.parameters(), gradients_.data(), state_.buffers()}),
      all_done_(make_event()) {
  clear(stream(), gradients_.data(), gradients_.size());
  clear(stream(), score_.data(), 1);
}

template <class T>
void CudaReplica<T>::load(const Dataset& dataset) {
  train_ = std::make_unique<LoadedSplit>(stream(), dataset.train);
  test_ = std::make_unique<LoadedSplit>(stream(), dataset.test);
}

template <class T>
void CudaReplica<T>::announce_rows(std::span<const std::int32_t> rows) {
  queue_due();
  announced_rows_.set(stream(), rows);
  wait();
}

template <class T>
void CudaReplica<T>::forward_backward(std::span<const std::int32_t> rows, float gradient_scale) {
  const std::int32_t* on_device = announced_rows_.find(rows);
  if (due_.step || due_.sum || on_device == nullptr) {
    queue_due();
  }
  if (on_device == nullptr) {
    other_rows_.set(stream(), rows);
    wait();
    on_device = other_rows_.data();
  }
  if (batch_norm_world_ != nullptr) {
    connect(*batch_norm_world_);
  }
  due_ = {.step = true, .batch = static_cast<int>(rows.size()), .record = {on_device, gradient_scale, {}}};
  device_network_.prepare(due_.batch);
}

template <class T>
void CudaReplica<T>::all_reduce_gradients(Communicator& communicator) {
  connect(communicator);
  due_.sum = true;
}

// Finds the other ranks, once: all sums are over the same ranks.
template <class T>
void CudaReplica<T>::connect(Communicator& communicator) {
  if (communicator.size() == 1 || &communicator == world_) {
    return;
  }
  if (world_ != nullptr) {
    throw Error(ExitCode::kInternal, "a replica was given two communicators: expected one for all its sums");
  }
  world_ = &communicator;
  communicator_ =
      make_device_communicator(communicator, context_.options, {gradients_.data(), gradients_.bytes()});
}

// The same on all ranks, as NCCL wants it of sums that are captured: only steps in which all ranks have
// equally many samples are.
template <class T>
bool CudaReplica<T>::is_captured() const {
  if (context_.options.graph == CudaGraph::kOff || due_.batch == 0) {
    return false;
  }
  if (communicator_ == nullptr) {
    return true;
  }
  const std::int64_t samples = std::llround(1.0 / static_cast<double>(due_.record.gradient_scale));
  return communicator_->can_be_captured() && samples == std::int64_t{due_.batch} * world_->size();
}

// Queues all that was noted down; of a step whose results are wanted before its update, piece by piece.
template <class T>
void CudaReplica<T>::queue_due() {
  launch_waiting();
  const Due due = std::exchange(due_, {});
  if (due.step) {
    set_record(stream(), records_.data(), due.record);
    queue_step(due.batch, due.sum, records_.data());
  } else if (due.sum) {
    std::ranges::for_each(buckets_, [this](const GradientBucket& bucket) { queue_sum(bucket.last_layer); });
    finish_sums();
  }
}

// The images and labels of the record's rows.
template <class T>
void CudaReplica<T>::take_batch(const LoadedSplit& split, int batch, const StepRecord* record) {
  gather(stream(), split.view(), record, batch, network_.input.size(), device_network_.input(),
         device_network_.labels());
}

// Forward and backward, and, with_sum, all that all_reduce_gradients promises.
template <class T>
void CudaReplica<T>::queue_step(int batch, bool with_sum, const StepRecord* record) {
  DeviceCommunicator* const batch_norm = batch_norm_world_ != nullptr ? communicator_.get() : nullptr;
  state_.begin_step(stream(), score_.data());
  if (batch > 0) {
    take_batch(*train_, batch, record);
  } else {
    clear(stream(), gradients_.data(), gradients_.size());
    clear(stream(), &score_.data()->local_loss_sum, 1);
  }
  device_network_.forward(batch, batch_norm);
  if (batch > 0) {
    device_network_.compute_loss(batch, record, tail(), score_.data());
  }
  device_network_.backward(batch, batch_norm, [&](std::size_t layer) {
    if (with_sum) {
      queue_sum(layer);
    }
  });
  if (with_sum) {
    finish_sums();
  }
}

// Begins the sum of the bucket that is complete with this layer, if there is one.
template <class T>
void CudaReplica<T>::queue_sum(std::size_t layer) {
  const auto bucket = std::ranges::find(buckets_, layer, &GradientBucket::last_layer);
  if (bucket != buckets_.end() && communicator_ != nullptr) {
    communicator_->start_sum(stream(), gradients_.data() + bucket->first, bucket->count);
  }
}

template <class T>
void CudaReplica<T>::finish_sums() {
  if (communicator_ != nullptr) {
    communicator_->finish(stream());
  }
  check_finite(stream(), gradients_.data(), static_cast<std::int64_t>(gradients_.size()), score_.data());
}

// A step of another kind than those that wait is not launched with them.
template <class T>
void CudaReplica<T>::update(const UpdateRule& rule) {
  const StepKind kind{.batch = due_.batch,
                      .moments = rule.moments(),
                      .is_adamw = rule.optimizer == Optimizer::kAdamW,
                      .nesterov = rule.nesterov,
                      .is_clipped = rule.clip_norm > 0.0};
  const bool can_wait = due_.step && due_.sum && is_captured();
  if (!can_wait || kind != waiting_kind_) {
    launch_waiting();
  }
  state_.keep_moments(stream(), static_cast<std::size_t>(rule.moments()));
  due_.record.update = update_terms(rule);
  if (!can_wait) {
    update_by_itself(kind);
    return;
  }
  waiting_kind_ = kind;
  waiting_.push_back(std::exchange(due_, {}).record);
  if (waiting_.size() == records_.size()) {
    launch(std::exchange(waiting_, {}));
  }
}

template <class T>
void CudaReplica<T>::update_by_itself(const StepKind& kind) {
  if (!due_.step) {
    set_record(stream(), records_.data(), due_.record);
  }
  queue_due();
  state_.update(stream(), kind, gradients_.data(), records_.data(), score_.data());
  keep_pace();
}

// Too few for a launch of the usual size: each by its own.
template <class T>
void CudaReplica<T>::launch_waiting() {
  for (const StepRecord& step : std::exchange(waiting_, {})) {
    launch(std::span(&step, 1));
  }
}

template <class T>
void CudaReplica<T>::launch(std::span<const StepRecord> steps) {
  StepKind kind = waiting_kind_;
  kind.steps = static_cast<int>(steps.size());
  set_records(stream(), records_.data(), steps);
  graphs_.run(stream(), kind, [&] {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      queue_step(kind.batch, true, records_.data() + i);
      state_.update(stream(), kind, gradients_.data(), records_.data() + i, score_.data());
    }
  });
  keep_pace();
}

template <class T>
void CudaReplica<T>::keep_pace() {
  if (const cudaEvent_t done = pace_.next()) {
    wait(done);
    check(cudaEventRecord(done, stream()), "cudaEventRecord");
  }
}

template <class T>
StepResult CudaReplica<T>::result() {
  queue_due();
  const Score score = download(score_.data(), 1).front();
  const std::vector<float> sums = download(tail(), kTail);
  return {.local_loss_sum = score.local_loss_sum,
          .loss_sum = communicator_ == nullptr ? score.local_loss_sum : static_cast<double>(sums[0]),
          .correct = std::isfinite(sums[1]) ? static_cast<std::int64_t>(sums[1]) : 0,
          .finite = score.is_finite != 0};
}

template <class T>
EvalResult CudaReplica<T>::evaluate(std::span<const std::int32_t> rows) {
  queue_due();
  other_rows_.set(stream(), rows);
  wait();
  clear(stream(), &score_.data()->test_loss_sum, 1);
  clear(stream(), &score_.data()->test_correct, 1);
  for (std::size_t first = 0; first < rows.size(); first += static_cast<std::size_t>(max_batch_)) {
    const int batch = static_cast<int>(std::min(rows.size() - first, static_cast<std::size_t>(max_batch_)));
    device_network_.prepare(batch);
    set_record(stream(), records_.data(), {other_rows_.data() + first, 0.0F, {}});
    take_batch(*test_, batch, records_.data());
    device_network_.infer(batch);
    device_network_.evaluate_loss(batch, score_.data());
  }
  const Score score = download(score_.data(), 1).front();
  return {score.test_loss_sum, score.test_correct};
}

template <class T>
ModelState CudaReplica<T>::read_state() {
  queue_due();
  ModelState state = state_.read(
      layout_, [this](const float* values, std::size_t count) { return download(values, count); });
  state.steps = download(score_.data(), 1).front().steps;
  return state;
}

template <class T>
void CudaReplica<T>::write_state(const ModelState& state) {
  queue_due();
  state_.write(stream(), layout_, state);
  const Score score{.steps = state.steps};
  upload(stream(), std::span(&score, 1), score_.data());
  wait();
}

template <class T>
std::vector<float> CudaReplica<T>::read_gradients() {
  queue_due();
  return layout_.collect_parameters(download(gradients_.data(), layout_.parameter_size()));
}

template <class T>
void CudaReplica<T>::wait(cudaEvent_t event) {
  if (communicator_ != nullptr) {
    communicator_->wait(event);
  } else {
    check(cudaEventSynchronize(event), "cudaEventSynchronize");
  }
}

// Waits for all that is queued.
template <class T>
void CudaReplica<T>::wait() {
  check(cudaEventRecord(all_done_.get(), stream()), "cudaEventRecord");
  wait(all_done_.get());
}

template <class T>
template <class Value>
std::vector<Value> CudaReplica<T>::download(const Value* values, std::size_t count) {
  auto* const staged = reinterpret_cast<Value*>(staging_.data());
  check(cudaMemcpyAsync(staged, values, count * sizeof(Value), cudaMemcpyDeviceToHost, stream()),
        "cudaMemcpyAsync");
  wait();
  return {staged, staged + count};
}

}  // namespace

std::unique_ptr<Replica> make_cuda_replica(const ReplicaOptions& options) {
  if (options.cuda.precision == Precision::kBf16) {
    return std::make_unique<CudaReplica<__nv_bfloat16>>(options);
  }
  return std::make_unique<CudaReplica<float>>(options);
}

}  // namespace convnet::cuda
