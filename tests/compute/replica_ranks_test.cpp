#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "comm/mpi_communicator.hpp"
#include "compute/backend_test.hpp"
#include "compute/judge.hpp"
#include "compute/network_tolerance.hpp"
#include "compute/random_values.hpp"
#include "compute/replica.hpp"
#include "compute/synthetic.hpp"
#include "compute/tolerance.hpp"

namespace convnet {
namespace {

constexpr int kBatch = 12;  // of all ranks together

using Rows = std::vector<std::int32_t>;

// Ways to deal the rows of a step to the ranks.
enum class Deal { kEqual, kGrowing, kNoneForTheFirst, kAllForTheLast };

Rows rows_of(Deal deal, int rank, int size) {
  Rows rows;
  for (std::int32_t row = 0; row < kBatch; ++row) {
    int owner = row % size;
    if (deal == Deal::kGrowing) {
      owner = std::min(size - 1, (row + 1) / 2);
    } else if (deal == Deal::kNoneForTheFirst) {
      owner = size == 1 ? 0 : 1 + row % (size - 1);
    } else if (deal == Deal::kAllForTheLast) {
      owner = size - 1;
    }
    if (owner == rank) {
      rows.push_back(row);
    }
  }
  return rows;
}

// One block and two, odd sizes, colour.
std::vector<Network> networks() {
  return {Network{{1, 9, 13}, {{.out_channels = 19, .kernel = 5, .padding = 2}}, 7},
          tutorial_network({3, 16, 18}, 10)};
}

class ReplicaRanksTest : public BackendTest {
 protected:
  // One step of this rank, summed over all.
  StepResult step(Replica& replica, const Rows& rows) {
    replica.forward_backward(rows, 1.0F / kBatch);
    replica.all_reduce_gradients(world_);
    return replica.result();
  }

  std::unique_ptr<Replica> make(const Network& network, const Dataset& dataset, const ModelState& state,
                                Communicator* batch_norm) {
    auto replica = GetParam().make_replica(
        {.network = network, .max_batch = kBatch, .batch_norm_communicator = batch_norm});
    replica->load(dataset);
    replica->write_state(state);
    return replica;
  }

  MpiCommunicator world_;
};

TEST_P(ReplicaRanksTest, GivesWithSynchronisedBatchNormWhatOneRankGivesForAllRows) {
  Rows all(kBatch);
  std::iota(all.begin(), all.end(), 0);
  for (const Network& network : networks()) {
    const Dataset dataset = synthetic_dataset(network, kBatch, 1, 1);
    const ModelState state = clear_state(network, dataset, all, clear_margin(network));
    judge::State judged(state);
    const auto expected = forward_backward(network, judged, batch_of(dataset.train, network.input, all),
                                           labels_of(dataset.train, all), 1.0 / kBatch);
    for (const Deal deal : {Deal::kEqual, Deal::kGrowing, Deal::kNoneForTheFirst, Deal::kAllForTheLast}) {
      SCOPED_TRACE(to_string(network.input) + ", deal " + std::to_string(static_cast<int>(deal)));
      const auto replica = make(network, dataset, state, &world_);
      const StepResult found = step(*replica, rows_of(deal, world_.rank(), world_.size()));
      EXPECT_EQ(found.correct, expected.loss.correct);
      EXPECT_NEAR(found.loss_sum, expected.loss.sum, loss_tolerance(network, expected.loss));
      double local_losses = found.local_loss_sum;
      world_.all_reduce_sum(std::span(&local_losses, 1));
      EXPECT_NEAR(local_losses, expected.loss.sum, loss_tolerance(network, expected.loss));
      EXPECT_TRUE(
          all_within(replica->read_gradients(), expected.gradients, gradient_tolerances(network, expected)));
      EXPECT_TRUE(
          all_within(replica->read_state().buffers, judged.buffers, buffer_tolerances(network, judged)));
    }
  }
}

double norm_of(const judge::Doubles& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

// How far a clipped step of SGD with Nesterov momentum may lie from the judge's where the gradient g may be
// off by `allowed`. |g|, by which clipping divides, is then off by |allowed| at most; Nesterov takes the
// gradient 1 + momentum times; and an update rounds about four times, as in replica_test.
judge::Doubles clipped_step_tolerances(const UpdateRule& rule, const judge::Doubles& gradients,
                                       const judge::Doubles& allowed) {
  const double norm = norm_of(gradients);
  const double factor = rule.learning_rate * (1.0 + rule.momentum) * rule.clip_norm / norm;
  judge::Doubles result;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const double of_norm = std::abs(gradients[i]) * norm_of(allowed) / norm;
    result.push_back(factor * (allowed[i] + of_norm) + tolerance(4.0, 2.0));
  }
  return result;
}

// What the recipe `large` rests on: P ranks x b take the step that 1 rank x P b takes.
TEST_P(ReplicaRanksTest, TakesTheClippedStepThatOneRankTakesForAllRows) {
  const UpdateRule rule{
      .learning_rate = 0.5, .momentum = 0.9, .nesterov = true, .weight_decay = 5e-4, .clip_norm = 0.5};
  Rows all(kBatch);
  std::iota(all.begin(), all.end(), 0);
  for (const Network& network : networks()) {
    const Dataset dataset = synthetic_dataset(network, kBatch, 1, 1);
    ModelState state = clear_state(network, dataset, all, clear_margin(network));
    state.moments = {random_values(std::ssize(state.parameters), -1.0F, 1.0F, 2)};
    judge::State judged(state);
    const auto expected = forward_backward(network, judged, batch_of(dataset.train, network.input, all),
                                           labels_of(dataset.train, all), 1.0 / kBatch);
    ASSERT_GT(norm_of(expected.gradients), 2.0 * rule.clip_norm);
    std::vector<judge::Doubles> moments{doubles(state.moments[0])};
    judge::apply_update(rule, expected.gradients, judged.parameters, moments);
    const auto allowed =
        clipped_step_tolerances(rule, expected.gradients, gradient_tolerances(network, expected));
    for (const Deal deal : {Deal::kEqual, Deal::kGrowing, Deal::kAllForTheLast}) {
      SCOPED_TRACE(to_string(network.input) + ", deal " + std::to_string(static_cast<int>(deal)));
      const auto replica = make(network, dataset, state, &world_);
      step(*replica, rows_of(deal, world_.rank(), world_.size()));
      replica->update(rule);
      EXPECT_TRUE(all_within(replica->read_state().parameters, judged.parameters, allowed));
    }
  }
}

// The judge's step over the batch of each rank by itself, with the gradients of all added up.
struct SeparateSteps {
  judge::Step sum;
  std::vector<judge::Doubles> buffers;  // of each rank
};

SeparateSteps judge_separately(const Network& network, const Dataset& dataset, const ModelState& state,
                               Deal deal, int size) {
  SeparateSteps result;
  result.sum.gradients.resize(state.parameters.size());
  result.sum.magnitudes.resize(state.parameters.size());
  const auto add = [](const judge::Doubles& values, judge::Doubles& sums) {
    std::ranges::transform(values, sums, sums.begin(), std::plus());
  };
  for (int rank = 0; rank < size; ++rank) {
    const Rows rows = rows_of(deal, rank, size);
    judge::State judged(state);
    if (!rows.empty()) {
      const auto step = forward_backward(network, judged, batch_of(dataset.train, network.input, rows),
                                         labels_of(dataset.train, rows), 1.0 / kBatch);
      result.sum.loss.sum += step.loss.sum;
      result.sum.loss.correct += step.loss.correct;
      result.sum.loss.magnitude += step.loss.magnitude;
      result.sum.margin = std::min(result.sum.margin, step.margin);
      add(step.gradients, result.sum.gradients);
      add(step.magnitudes, result.sum.magnitudes);
    }
    result.buffers.push_back(judged.buffers);
  }
  return result;
}

TEST_P(ReplicaRanksTest, NormalisesWithoutSynchronisationEachRanksBatchByItself) {
  for (const Network& network : networks()) {
    const Dataset dataset = synthetic_dataset(network, kBatch, 1, 1);
    for (const Deal deal : {Deal::kEqual, Deal::kGrowing, Deal::kNoneForTheFirst}) {
      SCOPED_TRACE(to_string(network.input) + ", deal " + std::to_string(static_cast<int>(deal)));
      std::uint64_t seed = 1;
      ModelState state = random_state(network, seed);
      auto expected = judge_separately(network, dataset, state, deal, world_.size());
      while (expected.sum.margin < clear_margin(network)) {
        state = random_state(network, ++seed);
        expected = judge_separately(network, dataset, state, deal, world_.size());
      }
      const auto replica = make(network, dataset, state, nullptr);
      const StepResult found = step(*replica, rows_of(deal, world_.rank(), world_.size()));
      EXPECT_EQ(found.correct, expected.sum.loss.correct);
      EXPECT_NEAR(found.loss_sum, expected.sum.loss.sum, loss_tolerance(network, expected.sum.loss));
      EXPECT_TRUE(all_within(replica->read_gradients(), expected.sum.gradients,
                             gradient_tolerances(network, expected.sum)));
      judge::State own(state);
      own.buffers = expected.buffers[static_cast<std::size_t>(world_.rank())];
      EXPECT_TRUE(all_within(replica->read_state().buffers, own.buffers, buffer_tolerances(network, own)));
    }
  }
}

TEST_P(ReplicaRanksTest, HoldsTheSameGradientsOnAllRanks) {
  const Network network = networks().front();
  const Dataset dataset = synthetic_dataset(network, kBatch, 1, 1);
  const auto replica = make(network, dataset, random_state(network, 1), &world_);
  step(*replica, rows_of(Deal::kGrowing, world_.rank(), world_.size()));
  const Floats gradients = replica->read_gradients();
  Floats of_first = gradients;
  world_.broadcast(std::as_writable_bytes(std::span(of_first)), 0);
  EXPECT_EQ(gradients, of_first);
}

TEST_P(ReplicaRanksTest, IsNotFiniteAnywhereIfOneRankIsNot) {
  const Network network = networks().front();
  const Dataset dataset = synthetic_dataset(network, kBatch, 1, 1);
  ModelState state = random_state(network, 1);
  if (world_.rank() == world_.size() - 1) {
    state.parameters.back() = std::numeric_limits<float>::quiet_NaN();
  }
  const auto replica = make(network, dataset, state, nullptr);
  EXPECT_FALSE(step(*replica, rows_of(Deal::kEqual, world_.rank(), world_.size())).finite);
}

INSTANTIATE_TEST_SUITE_P(Backends, ReplicaRanksTest, testing::ValuesIn(all_backends()), backend_name);

}  // namespace
}  // namespace convnet
