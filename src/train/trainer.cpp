#include "train/trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "comm/gather_values.hpp"
#include "comm/ranks.hpp"
#include "comm/shared_dataset.hpp"
#include "comm/together.hpp"
#include "convnet/error.hpp"
#include "train/nonfinite.hpp"

namespace convnet {

Trainer::Trainer(const TrainOptions& options, MpiCommunicator& world, StopSignals* signals,
                 const std::optional<ResumePoint>& point)
    : options_(agreed_options(options, world)),
      world_(world),
      node_(MpiCommunicator::of_node(world)),
      reporter_(options_, world.rank()),
      backend_(agreed_backend(options, world, node_)),
      data_(agreed_data(options, world, node_)),
      network_(tutorial_network(data_.info.shape, data_.info.classes)),
      layout_(network_),
      sampler_(sampler_options(options, data_.info, world)),
      keeper_(options, world, signals),
      versions_(library_versions(backend_).dump()),
      position_(point ? start_position(*point, data_.identity) : Position()),
      optimizer_start_(point ? point->checkpoint.optimizer_start : 0),
      total_steps_(position_.global_step + steps_left()),
      schedule_(options.schedule, peak_learning_rate(options, world.size()), options.warmup,
                total_steps(options, sampler_.steps_per_epoch())),
      rule_(update_rule(options)),
      test_rows_(exact_range(data_.info.test_count, world.rank(), world.size())) {
  if (point) {
    together(world_, [&] {
      require_same_data(data_.identity, network_, options_, *point);
      require_same_length(options_, sampler_.options(), *point);
    });
  }
  world_.progress().enter_phase("making sure that it can be saved");
  prepare_saving();
  const int threads = introduce(point);
  load_dataset();
  world_.progress().enter_phase("making the replica");
  make_own_replica(threads);
  take_up(point);
}

// Before anything is written: the log of a run that cannot be saved shall stay as it was.
void Trainer::prepare_saving() {
  if (!keeper_.is_keeping()) {
    return;
  }
  keeper_.prepare([this] {
    Checkpoint largest = checkpoint_of(initial_state(network_, options_.seed));
    largest.state.moments.assign(static_cast<std::size_t>(rule_.moments()), largest.state.parameters);
    if (options_.batch_norm_buffers == BatchNormBuffers::kMean) {
      largest.rank_buffers.resize(largest.state.buffers.size() * static_cast<std::size_t>(world_.size()));
    }
    return checkpoint_bytes(largest).size();
  });
}

int Trainer::introduce(const std::optional<ResumePoint>& point) {
  RunFacts facts{.ranks = gather_rank_facts(world_, node_),
                 .backend = backend_,
                 .data = data_.info,
                 .total_steps = total_steps_,
                 .resumed_from = point ? point->path : "",
                 .saved_by = point ? point->checkpoint.world_size : 0,
                 .position = position_};
  int own_threads = 0;
  together(world_, [&] {
    own_threads = thread_count(facts.ranks[static_cast<std::size_t>(world_.rank())], options_.threads);
    reporter_.open_log(!options_.resume.empty());
  });
  for (const std::string& threads : world_.all_gather(std::to_string(own_threads))) {
    facts.threads.push_back(std::stoi(threads));
  }
  facts.devices = world_.all_gather(
      backend_.device == Device::kCpu ? "cpu" : "cuda:" + std::to_string(backend_.gpu.index));
  reporter_.start(facts);
  return own_threads;
}

void Trainer::load_dataset() {
  if (options_.sharding == Sharding::kStatic) {
    together(world_,
             [&] { dataset_ = load_private_dataset(options_.data, sampler_.rows_held(), test_rows_); });
  } else {
    const RowRange all_train{0, data_.info.train_count};
    const RowRange all_test{0, data_.info.test_count};
    dataset_ = load_shared_dataset(options_.data, all_train, all_test, world_, node_);
  }
}

void Trainer::make_own_replica(int threads) {
  const std::int64_t largest_shard = (data_.info.train_count + world_.size() - 1) / world_.size();
  together(world_, [&] {
    replica_ = make_replica(
        backend_, {.network = network_,
                   .max_batch = static_cast<int>(std::min<std::int64_t>(options_.batch, largest_shard)),
                   .threads = threads,
                   .batch_norm_communicator = options_.batch_norm == BatchNorm::kSync ? &world_ : nullptr,
                   .skip_nonfinite = options_.on_nonfinite == OnNonfinite::kSkip,
                   .cuda = options_.cuda});
  });
  replica_->load(dataset_);
}

// The state to begin with: the checkpoint's, or that of a network that has seen nothing.
void Trainer::take_up(const std::optional<ResumePoint>& point) {
  ModelState state = point ? point->checkpoint.state : initial_state(network_, options_.seed);
  if (state.moments.size() != static_cast<std::size_t>(rule_.moments())) {
    state.moments.clear();  // of a new run, or of another optimiser (--override)
    optimizer_start_ = position_.global_step;
  }
  if (point && point->checkpoint.world_size == world_.size() && !point->checkpoint.rank_buffers.empty()) {
    const auto own = point->checkpoint.rank_buffers.begin() +
                     static_cast<std::ptrdiff_t>(state.buffers.size()) * world_.rank();
    std::copy_n(own, state.buffers.size(), state.buffers.begin());
  } else {
    are_buffers_shared_ = true;
  }
  updates_left_out_ = position_.global_step - state.steps;
  replica_->write_state(state);
}

// --- The loop ---

// From the position on: the rest of its epoch, and the epochs behind it, or fewer by --max-steps.
std::int64_t Trainer::steps_left() const {
  if (position_.epoch > options_.epochs) {
    return 0;
  }
  const std::int64_t steps = sampler_.steps_per_epoch(position_.samples) +
                             (options_.epochs - position_.epoch) * sampler_.steps_per_epoch();
  const std::int64_t most = std::max<std::int64_t>(options_.max_steps - position_.global_step, 0);
  return options_.max_steps > 0 ? std::min(steps, most) : steps;
}

// Of an epoch that has seen all its samples only the evaluation is still to be done.
bool Trainer::is_complete() const {
  const bool is_out_of_steps = options_.max_steps > 0 && position_.global_step >= options_.max_steps;
  return position_.epoch > options_.epochs || (is_out_of_steps && position_.samples < data_.info.train_count);
}

ExitCode Trainer::run() {
  if (is_complete()) {
    reporter_.nothing_left(position_);
    if (position_.step > 0 && position_.epoch <= options_.epochs) {
      evaluate();  // within an epoch (--max-steps): the run may have ended before it could
    }
  }
  keeper_.begin();
  while (!is_complete()) {
    const EpochEnd end = train_epoch();
    if (end == EpochEnd::kStopped) {
      save();
      finish_saving();
      reporter_.stopped(stop_reason_, position_);
      return ExitCode::kStopped;
    }
    if (end == EpochEnd::kOutOfSteps) {
      save();  // before the evaluation, which may average running statistics
      evaluate();
      break;
    }
    if (keeper_.is_late()) {
      save();  // an evaluation may take longer than there is time
    }
    evaluate();
    const bool is_due = keeper_.wants_epoch(position_.epoch);
    position_ = {.epoch = position_.epoch + 1, .global_step = position_.global_step};
    if (is_due || is_complete()) {
      save();
    }
  }
  finish_saving();
  reporter_.end(agreed_weights_sha256(), position_.global_step);
  return ExitCode::kOk;
}

Trainer::EpochEnd Trainer::train_epoch() {
  const EpochPart& epoch = epoch_.emplace(sampler_, position_);
  if (epoch.steps() > 0) {
    replica_->announce_rows(epoch.rows());
  }
  std::int64_t images = 0;
  reporter_.start_epoch(position_.step + epoch.steps());
  world_.progress().enter_phase("training");
  for (std::int64_t step = 0; step < epoch.steps() && position_.global_step < total_steps_; ++step) {
    train_step(step);
    images += epoch.samples_of(step);
    report_step(step, images);
    const Verdict verdict = keeper_.after_step(position_.global_step);
    if (!verdict.stop_reason.empty() && position_.global_step < total_steps_) {
      stop_reason_ = verdict.stop_reason;
      return EpochEnd::kStopped;
    }
    if (verdict.save || !verdict.stop_reason.empty()) {
      save();
    }
    report_saved();
  }
  replica_->result();  // a back end may be behind, and its time is the epoch's
  reporter_.end_training_epoch(images);
  return position_.samples == data_.info.train_count ? EpochEnd::kDone : EpochEnd::kOutOfSteps;
}

void Trainer::train_step(std::int64_t step) {
  rule_.learning_rate = schedule_.learning_rate(schedule_step(step));
  position_ = epoch_->after(step);
  rule_.step = position_.global_step - optimizer_start_;
  world_.progress().enter_step(position_.global_step);
  replica_->forward_backward(epoch_->rows_of(step), epoch_->gradient_scale(step));
  replica_->all_reduce_gradients(world_);
  replica_->update(rule_);
  are_buffers_shared_ = false;
}

// The schedule's clock: steps of a run that had this world size from its beginning.
double Trainer::schedule_step(std::int64_t step) const {
  const std::int64_t steps_per_epoch = sampler_.steps_per_epoch();
  if (options_.max_steps > 0 && options_.max_steps < options_.epochs * steps_per_epoch) {
    return static_cast<double>(position_.global_step);
  }
  const std::int64_t samples_a_step = std::int64_t{options_.batch} * world_.size();
  return static_cast<double>((position_.epoch - 1) * steps_per_epoch) +
         static_cast<double>(epoch_->start().samples + step * samples_a_step) /
             static_cast<double>(samples_a_step);
}

void Trainer::report_step(std::int64_t step, std::int64_t images) {
  reporter_.show_progress(position_.global_step, images);
  if (!reporter_.wants_step(position_.step, position_.global_step)) {
    return;
  }
  const StepResult result = replica_->result();
  require_finite(result);
  const auto samples = static_cast<double>(epoch_->samples_of(step));
  const double own_samples = std::max(1.0, static_cast<double>(epoch_->rows_of(step).size()));
  reporter_.step({position_.epoch, position_.step, position_.global_step, result.loss_sum / samples,
                  result.local_loss_sum / own_samples, rule_.learning_rate, result.finite},
                 images);
}

// The replica has refused all updates since the step that went wrong: the number of those done tells which it
// was.
void Trainer::require_finite(const StepResult& result) {
  if (result.finite || options_.on_nonfinite == OnNonfinite::kSkip) {
    return;
  }
  const std::int64_t steps_before = replica_->read_state().steps + updates_left_out_;
  const std::int64_t step = steps_before - epoch_->start().global_step;
  const Position after = epoch_->after(step);
  throw nonfinite_error(
      {after.epoch, after.step, after.global_step, epoch_->rows_of(step), epoch_->gradient_scale(step)},
      *replica_, layout_, world_);
}

// --- Saving ---

void Trainer::save() {
  if (!keeper_.is_keeping() || saved_ == position_) {
    return;
  }
  require_finite(replica_->result());
  world_.progress().enter_phase("saving");
  const bool has_own_buffers = options_.batch_norm == BatchNorm::kLocal &&
                               options_.batch_norm_buffers == BatchNormBuffers::kMean && world_.size() > 1 &&
                               !are_buffers_shared_;
  if (world_.rank() == 0 || has_own_buffers) {
    Checkpoint checkpoint = checkpoint_of(replica_->read_state());
    if (has_own_buffers) {
      checkpoint.rank_buffers = gather_values(checkpoint.state.buffers, world_);
      checkpoint.state.buffers = mean_of_parts(checkpoint.rank_buffers, world_.size());
    }
    keeper_.write(std::move(checkpoint));
  }
  saved_ = position_;
  report_saved();
  world_.progress().enter_phase("training");
}

Checkpoint Trainer::checkpoint_of(ModelState state) const {
  constexpr int kOneLine = -1;
  nlohmann::ordered_json options = to_json(options_);
  options["data"] = std::filesystem::absolute(options_.data).string();  // resumed from elsewhere, perhaps
  return {.network = network_,
          .state = std::move(state),
          .rank_buffers = {},
          .position = position_,
          .optimizer_start = optimizer_start_,
          .world_size = world_.size(),
          .options = options.dump(kOneLine, ' ', false, nlohmann::json::error_handler_t::replace),
          .data = data_.identity,
          .versions = versions_};
}

void Trainer::report_saved() {
  if (const auto written = keeper_.take_written()) {
    reporter_.saved(*written);
  }
}

void Trainer::finish_saving() {
  if (keeper_.is_keeping()) {
    world_.progress().enter_phase("saving");
    keeper_.finish();
    report_saved();
  }
}

// --- Evaluation ---

// DDP keeps the buffers of rank 0 alone: what the other ranks gathered never counts.
void Trainer::share_batch_norm_buffers() {
  if (are_buffers_shared_ || world_.size() == 1 || options_.batch_norm == BatchNorm::kSync) {
    return;
  }
  ModelState state = replica_->read_state();
  if (options_.batch_norm_buffers == BatchNormBuffers::kRank0) {
    world_.broadcast(std::as_writable_bytes(std::span(state.buffers)), 0);
  } else {
    world_.all_reduce_sum(std::span(state.buffers));
    for (float& value : state.buffers) {
      value /= static_cast<float>(world_.size());
    }
  }
  replica_->write_state(state);
  are_buffers_shared_ = true;
}

// In parts, each a sign of life for the watchdog.
EvalResult Trainer::evaluate_rows(std::span<const std::int32_t> rows) {
  const std::size_t part = std::size_t{100} * static_cast<std::size_t>(options_.batch);
  EvalResult total;
  for (std::size_t first = 0; first < rows.size(); first += part) {
    world_.progress().enter_phase("evaluating");
    const EvalResult own = replica_->evaluate(rows.subspan(first, std::min(part, rows.size() - first)));
    total.loss_sum += own.loss_sum;
    total.correct += own.correct;
  }
  return total;
}

void Trainer::evaluate() {
  world_.progress().enter_phase("evaluating");
  share_batch_norm_buffers();
  std::vector<std::int32_t> rows(static_cast<std::size_t>(test_rows_.count));
  std::iota(rows.begin(), rows.end(),
            static_cast<std::int32_t>(test_rows_.first - dataset_.test.range.first));
  const EvalResult own = evaluate_rows(rows);
  std::array<double, 2> sums{own.loss_sum, static_cast<double>(own.correct)};
  world_.all_reduce_sum(sums);
  const double mean_loss = sums[0] / static_cast<double>(data_.info.test_count);
  if (!std::isfinite(mean_loss)) {
    throw Error(ExitCode::kData, "evaluation after epoch " + std::to_string(position_.epoch) +
                                     " gives a loss that is not finite; a lower --lr may help")
        .on_every_rank();
  }
  const std::int64_t left_out = options_.on_nonfinite == OnNonfinite::kSkip
                                    ? position_.global_step - replica_->read_state().steps
                                    : updates_left_out_;
  reporter_.end_epoch({position_.epoch, static_cast<std::int64_t>(sums[1]), data_.info.test_count, mean_loss,
                       left_out - std::exchange(updates_left_out_, left_out)});
}

ModelState Trainer::state() {
  share_batch_norm_buffers();
  return replica_->read_state();
}

// All replicas must have stayed the same to the last bit; if they have not, something is badly wrong.
std::string Trainer::agreed_weights_sha256() {
  std::string sum = weights_sha256(layout_, state());
  require_agreement(world_, "the trained weights' SHA-256", sum);
  return sum;
}

}  // namespace convnet
