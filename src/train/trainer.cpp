#include "train/trainer.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "comm/ranks.hpp"
#include "comm/shared_dataset.hpp"
#include "comm/together.hpp"
#include "convnet/error.hpp"
#include "convnet/sha256.hpp"

namespace convnet {
namespace {

SamplerOptions sampler_options(const TrainOptions& options, const DataFileInfo& info,
                               const Communicator& world) {
  return {.sample_count = info.train_count,
          .rank = world.rank(),
          .world_size = world.size(),
          .batch = options.batch,
          .seed = options.seed,
          .sharding = options.sharding,
          .tail = options.tail,
          .reshuffle = options.reshuffle};
}

// What tells one data file from another, whatever its path: shape, counts, sources, and a sum over the
// labels.
std::string identity_of(const DataFile& file) {
  const DataFileInfo& info = file.info();
  std::string identity = to_string(info.shape) + (info.transposed ? " transposed, " : ", ") +
                         std::to_string(info.classes) + " classes, " + std::to_string(info.train_count) +
                         " + " + std::to_string(info.test_count) + " images";
  for (const SourceFile& source : info.sources) {
    identity += ", " + source.name + " " + source.sha256;
  }
  Sha256 labels_sum;
  for (const Split split : {Split::kTrain, Split::kTest}) {
    std::vector<std::int32_t> labels(static_cast<std::size_t>(info.count(split)));
    file.read_labels(split, 0, labels);
    labels_sum.update(std::as_bytes(std::span(labels)));
  }
  return identity + ", labels " + labels_sum.hex();
}

// What the file holds, once all ranks agree on it and know that the network and the sampler can take it.
DataFileInfo agreed_info(const TrainOptions& options, MpiCommunicator& world) {
  world.progress().enter_phase("reading the data");
  DataFileInfo info;
  std::string identity;
  together(world, [&] {
    const DataFile file(options.data);
    info = file.info();
    identity = identity_of(file);
  });
  require_agreement(world, "the data file", identity);
  together(world, [&] {
    tutorial_network(info.shape, info.classes);
    Sampler(sampler_options(options, info, world));
  });
  return info;
}

TrainOptions agreed_options(const TrainOptions& options, MpiCommunicator& world) {
  require_agreement(world, "the program's version", CONVNET_VERSION);
  nlohmann::ordered_json shared = to_json(options);
  for (const char* own : {"data", "log"}) {
    shared.erase(own);  // a rank may have paths of its own: the data is compared by its contents
  }
  for (const auto& [name, value] : shared.items()) {
    require_agreement(world, "--" + name, value.dump());
  }
  return options;
}

BackendChoice agreed_backend(const TrainOptions& options, MpiCommunicator& world,
                             const MpiCommunicator& node) {
  BackendChoice choice = agree_on_backend(
      options.device, options.cuda.share_gpu ? GpuSharing::kAllowed : GpuSharing::kForbidden, world, node);
  together(world, [&] { check_options_of(choice, options); });
  return choice;
}

void warn_of_crowding(const std::vector<RankFacts>& ranks, const std::vector<int>& threads) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (threads[i] > ranks[i].cores) {
      spdlog::warn(
          "rank {} on {} has {} threads but is bound to {} core{}: mpirun --bind-to none, or fewer --threads",
          i, ranks[i].host, threads[i], ranks[i].cores, ranks[i].cores == 1 ? "" : "s");
    }
  }
}

}  // namespace

Trainer::Trainer(const TrainOptions& options, MpiCommunicator& world)
    : options_(agreed_options(options, world)),
      world_(world),
      node_(MpiCommunicator::of_node(world)),
      reporter_(options_, world.rank()),
      backend_(agreed_backend(options, world, node_)),
      data_info_(agreed_info(options, world)),
      network_(tutorial_network(data_info_.shape, data_info_.classes)),
      sampler_(sampler_options(options, data_info_, world)),
      total_steps_(total_steps(options, sampler_.steps_per_epoch())),
      schedule_(options.schedule, peak_learning_rate(options, world.size()), options.warmup, total_steps_),
      test_rows_(exact_range(data_info_.test_count, world.rank(), world.size())) {
  const int threads = introduce();
  world.progress().enter_phase("reading the data");
  load_dataset();
  world.progress().enter_phase("making the replica");
  const std::int64_t largest_shard = (data_info_.train_count + world.size() - 1) / world.size();
  together(world_, [&] {
    replica_ = make_replica(
        backend_, {.network = network_,
                   .max_batch = static_cast<int>(std::min<std::int64_t>(options_.batch, largest_shard)),
                   .threads = threads,
                   .batch_norm_communicator = options_.batch_norm == BatchNorm::kSync ? &world_ : nullptr,
                   .cuda = options_.cuda});
  });
  replica_->load(dataset_);
  replica_->write_state(initial_state(network_, options_.seed));
}

int Trainer::introduce() {
  RunFacts facts{.ranks = gather_rank_facts(world_, node_),
                 .backend = backend_,
                 .data = data_info_,
                 .steps_per_epoch = sampler_.steps_per_epoch(),
                 .total_steps = total_steps_};
  int own_threads = 0;
  together(world_, [&] {
    own_threads = thread_count(facts.ranks[static_cast<std::size_t>(world_.rank())], options_.threads);
    reporter_.open_log();
  });
  for (const std::string& threads : world_.all_gather(std::to_string(own_threads))) {
    facts.threads.push_back(std::stoi(threads));
  }
  facts.devices = world_.all_gather(
      backend_.device == Device::kCpu ? "cpu" : "cuda:" + std::to_string(backend_.gpu.index));
  reporter_.start(facts);
  if (world_.rank() == 0) {
    warn_of_crowding(facts.ranks, facts.threads);
  }
  return own_threads;
}

void Trainer::load_dataset() {
  if (options_.sharding == Sharding::kStatic) {
    together(world_,
             [&] { dataset_ = load_private_dataset(options_.data, sampler_.rows_held(), test_rows_); });
  } else {
    const RowRange all_train{0, data_info_.train_count};
    const RowRange all_test{0, data_info_.test_count};
    dataset_ = load_shared_dataset(options_.data, all_train, all_test, world_, node_);
  }
}

void Trainer::run() {
  for (int epoch = 1; global_step_ < total_steps_; ++epoch) {
    train_epoch(epoch);
    evaluate(epoch);
  }
  world_.progress().enter_phase("ending");
  reporter_.end(agreed_weights_sha256(), global_step_);
}

void Trainer::train_epoch(int epoch) {
  world_.progress().enter_phase("training");
  UpdateRule rule{.optimizer = options_.optimizer,
                  .momentum = options_.momentum,
                  .nesterov = options_.nesterov,
                  .weight_decay = options_.weight_decay};
  const auto batch = static_cast<std::size_t>(options_.batch);
  const std::vector<std::int32_t> rows = sampler_.epoch_rows(epoch - 1);
  replica_->announce_rows(rows);
  std::span<const std::int32_t> rows_left(rows);
  std::int64_t images = 0;
  reporter_.start_epoch();
  for (std::int64_t step = 0; step < sampler_.steps_per_epoch() && global_step_ < total_steps_; ++step) {
    const auto own = rows_left.first(std::min(batch, rows_left.size()));
    rows_left = rows_left.subspan(own.size());
    const std::int64_t samples = sampler_.samples_in_step(step);
    rule.learning_rate = schedule_.learning_rate(global_step_);
    rule.step = ++global_step_;
    world_.progress().enter_step(global_step_);

    replica_->forward_backward(own, 1.0F / static_cast<float>(samples));
    replica_->all_reduce_gradients(world_);
    replica_->update(rule);

    images += samples;
    reporter_.show_progress(global_step_, images);
    if (reporter_.wants_step(step + 1, global_step_)) {
      const StepResult result = replica_->result();
      require_finite(epoch, step + 1, result);
      const double own_samples = std::max(1.0, static_cast<double>(own.size()));
      reporter_.step({epoch, step + 1, global_step_, result.loss_sum / static_cast<double>(samples),
                      result.local_loss_sum / own_samples, rule.learning_rate},
                     images);
    }
  }
  reporter_.end_training_epoch(images);
}

void Trainer::require_finite(int epoch, std::int64_t step, const StepResult& result) {
  if (result.finite) {
    return;
  }
  std::string culprits;
  const std::vector<std::string> losses = world_.all_gather(std::to_string(result.local_loss_sum));
  for (std::size_t rank = 0; rank < losses.size(); ++rank) {
    if (!std::isfinite(std::stod(losses[rank]))) {
      culprits += (culprits.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  throw Error(ExitCode::kData, "training met a loss or gradient that is not finite after " +
                                   std::to_string(replica_->read_state().steps) +
                                   " good steps (seen in epoch " + std::to_string(epoch) + " at step " +
                                   std::to_string(step) + ", loss not finite on rank " +
                                   (culprits.empty() ? "none" : culprits) + "); a lower --lr may help")
      .on_every_rank();
}

// DDP keeps the buffers of rank 0 alone: what the other ranks gathered never counts.
void Trainer::share_batch_norm_buffers() {
  if (world_.size() == 1 || options_.batch_norm == BatchNorm::kSync) {
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
}

void Trainer::evaluate(int epoch) {
  world_.progress().enter_phase("evaluating");
  share_batch_norm_buffers();
  std::vector<std::int32_t> rows(static_cast<std::size_t>(test_rows_.count));
  std::iota(rows.begin(), rows.end(),
            static_cast<std::int32_t>(test_rows_.first - dataset_.test.range.first));
  const EvalResult own = replica_->evaluate(rows);
  std::array<double, 2> sums{own.loss_sum, static_cast<double>(own.correct)};
  world_.all_reduce_sum(sums);
  const double mean_loss = sums[0] / static_cast<double>(data_info_.test_count);
  if (!std::isfinite(mean_loss)) {
    throw Error(ExitCode::kData, "evaluation after epoch " + std::to_string(epoch) +
                                     " gives a loss that is not finite; a lower --lr may help")
        .on_every_rank();
  }
  reporter_.end_epoch({epoch, static_cast<std::int64_t>(sums[1]), data_info_.test_count, mean_loss});
}

ModelState Trainer::state() {
  share_batch_norm_buffers();
  return replica_->read_state();
}

// All replicas must have stayed the same to the last bit; if they have not, something is badly wrong.
std::string Trainer::agreed_weights_sha256() {
  std::string sum = weights_sha256(StateLayout(network_), state());
  require_agreement(world_, "the trained weights' SHA-256", sum);
  return sum;
}

}  // namespace convnet
