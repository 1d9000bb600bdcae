#include "compute/cuda/cuda_replica.hpp"

#include <cuda_bf16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "compute/cuda/device_communicator.hpp"
#include "compute/cuda/device_network.hpp"
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
// launch of a captured graph: forward_backward and all_reduce_gradients are queued by update(), or by
// whatever asks for their results before.
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
  // What has been asked for and not been queued yet.
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
  void take_batch(const LoadedSplit& split, int batch);
  void queue_step(int batch, bool with_sum);
  void queue_sum(std::size_t layer);
  void finish_sums();
  void queue_update(const UpdateRule& rule);
  void keep_moments(std::size_t count);

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
  DeviceArray<float> parameters_;
  DeviceArray<float> buffers_;
  DeviceArray<float> buffers_before_;  // the step, where it may be skipped; else empty
  std::array<DeviceArray<float>, 2> moments_;
  std::size_t moment_count_ = 0;
  NcclArray<float> gradients_;  // of all parameters, then the tail
  DeviceArray<StepRecord> record_;
  DeviceArray<Score> score_;
  PinnedArray<std::byte> staging_;  // for what is downloaded: at most all parameters, or the score
  DeviceNetwork<T> device_network_;
  std::unique_ptr<LoadedSplit> train_;
  std::unique_ptr<LoadedSplit> test_;
  std::span<const std::int32_t> announced_;  // the host's rows that announced_rows_ has
  RowList announced_rows_;
  RowList other_rows_;
  Communicator* world_ = nullptr;
  std::unique_ptr<DeviceCommunicator> communicator_;  // where there is more than one rank
  StepGraphs graphs_;  // behind the communicator, whose sums they hold: so they go first, as NCCL wants it
  Due due_;
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
      parameters_(layout_.parameter_size()),
      buffers_(layout_.buffer_size()),
      buffers_before_(options.skip_nonfinite ? layout_.buffer_size() : 0),
      moments_{DeviceArray<float>(layout_.parameter_size()), DeviceArray<float>(layout_.parameter_size())},
      gradients_(layout_.parameter_size() + kTail),
      record_(1),
      score_(1),
      staging_(std::max(parameters_.bytes(), sizeof(Score))),
      device_network_(context_, network_, max_batch_, layout_,
                      {parameters_.data(), gradients_.data(), buffers_.data()}),
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
  announced_ = rows;
  announced_rows_.set(stream(), rows);
  wait();
}

template <class T>
void CudaReplica<T>::forward_backward(std::span<const std::int32_t> rows, float gradient_scale) {
  queue_due();
  const std::int32_t* on_device = nullptr;
  const bool is_announced = !rows.empty() && !announced_.empty() && rows.data() >= announced_.data() &&
                            rows.data() + rows.size() <= announced_.data() + announced_.size();
  if (is_announced) {
    on_device = announced_rows_.data() + (rows.data() - announced_.data());
  } else {
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
  if (context_.options.graph == CudaGraph::kOn && !communicator_->can_be_captured()) {
    throw Error(ExitCode::kUsage, "--cuda-graph on: sums by way of the host (--comm mpi) cannot be captured")
        .on_every_rank();
  }
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

// Queues what is due, piece by piece: the results of a step are wanted before its update.
template <class T>
void CudaReplica<T>::queue_due() {
  const Due due = std::exchange(due_, {});
  if (due.step) {
    set_record(stream(), record_.data(), due.record);
    queue_step(due.batch, due.sum);
  } else if (due.sum) {
    std::ranges::for_each(buckets_, [this](const GradientBucket& bucket) { queue_sum(bucket.last_layer); });
    finish_sums();
  }
}

// The images and labels of the record's rows.
template <class T>
void CudaReplica<T>::take_batch(const LoadedSplit& split, int batch) {
  gather(stream(), split.view(), record_.data(), batch, network_.input.size(), device_network_.input(),
         device_network_.labels());
}

// Forward and backward, and, with_sum, all that all_reduce_gradients promises.
template <class T>
void CudaReplica<T>::queue_step(int batch, bool with_sum) {
  DeviceCommunicator* const batch_norm = batch_norm_world_ != nullptr ? communicator_.get() : nullptr;
  if (buffers_before_.size() > 0) {
    begin_skippable(stream(), buffers_.data(), static_cast<std::int64_t>(buffers_.size()),
                    buffers_before_.data(), score_.data());
  }
  if (batch > 0) {
    take_batch(*train_, batch);
  } else {
    clear(stream(), gradients_.data(), gradients_.size());
    clear(stream(), &score_.data()->local_loss_sum, 1);
  }
  device_network_.forward(batch, batch_norm);
  if (batch > 0) {
    device_network_.compute_loss(batch, record_.data(), tail(), score_.data());
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

template <class T>
void CudaReplica<T>::update(const UpdateRule& rule) {
  keep_moments(static_cast<std::size_t>(rule.moments()));
  StepRecord record = due_.record;
  record.update = update_terms(rule);
  if (due_.step && due_.sum && is_captured()) {
    const Due due = std::exchange(due_, {});
    set_record(stream(), record_.data(), record);
    graphs_.run(
        stream(),
        {due.batch, rule.moments(), rule.optimizer == Optimizer::kAdamW, rule.nesterov, rule.clip_norm > 0.0},
        [&] {
          queue_step(due.batch, true);
          queue_update(rule);
        });
  } else {
    queue_due();
    set_record(stream(), record_.data(), record);
    queue_update(rule);
  }
  const cudaEvent_t step_done = pace_.next();
  wait(step_done);
  check(cudaEventRecord(step_done, stream()), "cudaEventRecord");
}

template <class T>
void CudaReplica<T>::queue_update(const UpdateRule& rule) {
  const UpdateArrays arrays{static_cast<std::int64_t>(layout_.parameter_size()), gradients_.data(),
                            parameters_.data(), rule.moments() > 0 ? moments_[0].data() : nullptr,
                            rule.moments() > 1 ? moments_[1].data() : nullptr};
  if (rule.clip_norm > 0.0) {
    clip_gradients(stream(), arrays.gradients, arrays.count, record_.data(), score_.data());
  }
  if (rule.optimizer == Optimizer::kAdamW) {
    apply_adamw(stream(), arrays, record_.data(), score_.data());
  } else {
    apply_sgd(stream(), arrays, rule.nesterov, record_.data(), score_.data());
  }
  if (buffers_before_.size() > 0) {
    end_skippable(stream(), buffers_before_.data(), static_cast<std::int64_t>(buffers_.size()),
                  buffers_.data(), score_.data());
  }
}

// Moments that were not there before start at 0.
template <class T>
void CudaReplica<T>::keep_moments(std::size_t count) {
  for (std::size_t i = moment_count_; i < count; ++i) {
    clear(stream(), moments_.at(i).data(), moments_.at(i).size());
  }
  moment_count_ = count;
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
    set_record(stream(), record_.data(), {other_rows_.data() + first, 0.0F, {}});
    take_batch(*test_, batch);
    device_network_.infer(batch);
    device_network_.evaluate_loss(batch, score_.data());
  }
  const Score score = download(score_.data(), 1).front();
  return {score.test_loss_sum, score.test_correct};
}

template <class T>
ModelState CudaReplica<T>::read_state() {
  queue_due();
  ModelState state{.parameters = layout_.collect_parameters(download(parameters_.data(), parameters_.size())),
                   .buffers = layout_.collect_buffers(download(buffers_.data(), buffers_.size())),
                   .moments = {},
                   .steps = download(score_.data(), 1).front().steps};
  for (std::size_t i = 0; i < moment_count_; ++i) {
    state.moments.push_back(
        layout_.collect_parameters(download(moments_.at(i).data(), moments_.at(i).size())));
  }
  return state;
}

template <class T>
void CudaReplica<T>::write_state(const ModelState& state) {
  queue_due();
  const auto put = [this](const std::vector<float>& values, const DeviceArray<float>& to) {
    upload(stream(), std::span(values), to.data());
  };
  put(layout_.spread_parameters(state.parameters), parameters_);
  put(layout_.spread_buffers(state.buffers), buffers_);
  moment_count_ = state.moments.size();
  for (std::size_t i = 0; i < moment_count_; ++i) {
    put(layout_.spread_parameters(state.moments[i]), moments_.at(i));
  }
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
