#include "compute/replica.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "compute/backend_test.hpp"
#include "compute/judge.hpp"
#include "compute/lone_communicator.hpp"
#include "compute/network_tolerance.hpp"
#include "compute/synthetic.hpp"
#include "compute/tolerance.hpp"

namespace convnet {
namespace {

// A network, data to train on, and a state to start from.
struct Scene {
  explicit Scene(Network given)
      : network(std::move(given)),
        dataset(synthetic_dataset(network, 9, 11, 1)),
        state(random_state(network, 1)) {}

  judge::Images batch() const { return batch_of(dataset.train, network.input, rows); }
  std::vector<std::int32_t> labels() const { return labels_of(dataset.train, rows); }

  Network network;
  Dataset dataset;
  std::vector<std::int32_t> rows{7, 0, 8, 3, 0};
  ModelState state;
};

Network one_block() {
  return {{1, 9, 13}, {{.out_channels = 19, .kernel = 5, .padding = 2}}, 7};
}

// One, two and three blocks, odd sizes, colour, many classes.
std::vector<Network> networks() {
  return {one_block(), tutorial_network({1, 28, 28}, 47), tutorial_network({3, 32, 32}, 10),
          Network{{2, 19, 17},
                  {{.out_channels = 5, .kernel = 3, .padding = 1},
                   {.out_channels = 4, .kernel = 5, .padding = 2},
                   {.out_channels = 17, .kernel = 3, .padding = 1}},
                  5}};
}

class ReplicaTest : public BackendTest {
 protected:
  static std::unique_ptr<Replica> make(const Scene& scene, int max_batch) {
    auto replica = GetParam().make_replica({.network = scene.network, .max_batch = max_batch});
    replica->load(scene.dataset);
    replica->write_state(scene.state);
    return replica;
  }

  // A step up to the update.
  static StepResult step(Replica& replica, std::span<const std::int32_t> rows) {
    LoneCommunicator alone;
    replica.forward_backward(rows, rows.empty() ? 1.0F : 1.0F / static_cast<float>(rows.size()));
    replica.all_reduce_gradients(alone);
    return replica.result();
  }
};

TEST_P(ReplicaTest, GivesLossGradientsAndStatisticsAsTheJudge) {
  for (const Network& network : networks()) {
    SCOPED_TRACE(to_string(network.input));
    Scene scene(network);
    scene.state = clear_state(network, scene.dataset, scene.rows, clear_margin(network));
    const auto replica = make(scene, 5);
    const StepResult found = step(*replica, scene.rows);
    judge::State state(scene.state);
    const auto expected = forward_backward(network, state, scene.batch(), scene.labels(), 1.0 / 5.0);
    EXPECT_EQ(found.correct, expected.loss.correct);
    EXPECT_TRUE(found.finite);
    EXPECT_NEAR(found.loss_sum, expected.loss.sum, loss_tolerance(network, expected.loss));
    EXPECT_NEAR(found.local_loss_sum, expected.loss.sum, loss_tolerance(network, expected.loss));
    EXPECT_TRUE(
        all_within(replica->read_gradients(), expected.gradients, gradient_tolerances(network, expected)));
    EXPECT_TRUE(all_within(replica->read_state().buffers, state.buffers, buffer_tolerances(network, state)));
  }
}

TEST_P(ReplicaTest, EvaluatesAnyNumberOfRowsWithTheRunningStatistics) {
  std::vector<std::int32_t> rows(11);
  std::iota(rows.begin(), rows.end(), 0);
  for (const Network& network : networks()) {
    SCOPED_TRACE(to_string(network.input));
    const Scene scene(network);
    const judge::State state(scene.state);
    const auto expected = evaluate(network, state, batch_of(scene.dataset.test, network.input, rows),
                                   labels_of(scene.dataset.test, rows));
    for (const int max_batch : {4, 5, 11}) {
      const EvalResult found = make(scene, max_batch)->evaluate(rows);
      EXPECT_EQ(found.correct, expected.correct);
      EXPECT_NEAR(found.loss_sum, expected.sum, loss_tolerance(network, expected));
    }
  }
}

TEST_P(ReplicaTest, LeavesItsStateAloneWhenItEvaluates) {
  const Scene scene(one_block());
  const auto replica = make(scene, 5);
  replica->evaluate(scene.rows);
  EXPECT_EQ(replica->read_state(), scene.state);
}

TEST_P(ReplicaTest, GivesTheBiasOfAConvolutionNoGradient) {
  const Scene scene(one_block());
  const auto replica = make(scene, 5);
  step(*replica, scene.rows);
  const TensorInfo bias = StateLayout(scene.network).tensor("layer1.0.bias");
  const auto gradients = replica->read_gradients();
  EXPECT_TRUE(std::all_of(gradients.begin() + bias.offset, gradients.begin() + bias.offset + bias.size(),
                          [](float value) { return value == 0.0F; }));
}

TEST_P(ReplicaTest, FollowsEachUpdateRuleFromItsOwnGradients) {
  const std::vector<UpdateRule> rules{
      {.learning_rate = 0.05},
      {.learning_rate = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01},
      {.learning_rate = 0.05, .momentum = 0.9, .clip_norm = 0.1},
      {.optimizer = Optimizer::kAdamW, .learning_rate = 0.01, .weight_decay = 0.01}};
  constexpr int kSteps = 4;
  const Scene scene(one_block());
  for (UpdateRule rule : rules) {
    SCOPED_TRACE(rule.moments());
    const auto replica = make(scene, 5);
    judge::Doubles parameters = doubles(scene.state.parameters);
    std::vector<judge::Doubles> moments;
    for (rule.step = 1; rule.step <= kSteps; ++rule.step) {
      step(*replica, scene.rows);
      replica->update(rule);
      judge::apply_update(rule, doubles(replica->read_gradients()), parameters, moments);
    }
    const ModelState found = replica->read_state();
    EXPECT_EQ(found.steps, kSteps);
    // Each step rounds about four times.
    EXPECT_TRUE(all_within(found.parameters, parameters, tolerance(4.0 * kSteps, 2.0)));
    ASSERT_EQ(found.moments.size(), moments.size());
    for (std::size_t m = 0; m < moments.size(); ++m) {
      EXPECT_TRUE(all_within(found.moments[m], moments[m], tolerance(4.0 * kSteps, 4.0)));
    }
  }
}

TEST_P(ReplicaTest, GivesZerosForAnEmptyBatch) {
  const Scene scene(one_block());
  const auto replica = make(scene, 5);
  step(*replica, scene.rows);
  replica->write_state(scene.state);
  const StepResult result = step(*replica, {});
  EXPECT_EQ(result.loss_sum, 0.0);
  EXPECT_EQ(result.local_loss_sum, 0.0);
  EXPECT_EQ(result.correct, 0);
  EXPECT_TRUE(result.finite);
  EXPECT_EQ(replica->read_gradients(), Floats(scene.state.parameters.size(), 0.0F));
  EXPECT_EQ(replica->read_state(), scene.state);
  EXPECT_EQ(replica->evaluate({}).loss_sum, 0.0);
}

TEST_P(ReplicaTest, ReadsBackTheStateThatWasWritten) {
  for (const Network& network : networks()) {
    Scene scene(network);
    scene.state.moments = {scene.state.parameters, Floats(scene.state.parameters.size(), 0.5F)};
    scene.state.steps = 17;
    EXPECT_EQ(make(scene, 5)->read_state(), scene.state);
  }
}

TEST_P(ReplicaTest, DoesNotUpdateFromWhatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    SCOPED_TRACE(bad);
    Scene scene(one_block());
    scene.state.parameters[3] = bad;
    scene.state.moments = {Floats(scene.state.parameters.size(), 0.25F)};
    const auto replica = make(scene, 5);
    EXPECT_FALSE(step(*replica, scene.rows).finite);
    replica->update({.learning_rate = 0.1, .momentum = 0.9});
    const ModelState after = replica->read_state();
    EXPECT_TRUE(std::ranges::equal(after.parameters, scene.state.parameters, {},
                                   std::bit_cast<std::uint32_t, float>, std::bit_cast<std::uint32_t, float>));
    EXPECT_EQ(after.moments, scene.state.moments);
    EXPECT_EQ(after.steps, 0);
  }
}

TEST_P(ReplicaTest, SkipsAStepThatIsNotFiniteWhereAskedTo) {
  const Scene scene(one_block());
  for (const UpdateRule& rule :
       {UpdateRule{.learning_rate = 0.1, .momentum = 0.9}, UpdateRule{.optimizer = Optimizer::kAdamW}}) {
    std::vector<ModelState> states;
    for (const bool meets_bad_step : {false, true}) {
      const auto replica =
          GetParam().make_replica({.network = scene.network, .max_batch = 5, .skip_nonfinite = true});
      replica->load(scene.dataset);
      replica->write_state(scene.state);
      EXPECT_TRUE(step(*replica, scene.rows).finite);
      replica->update(rule);
      if (meets_bad_step) {
        LoneCommunicator alone;
        replica->forward_backward(std::span(scene.rows).first(3), std::numeric_limits<float>::infinity());
        replica->all_reduce_gradients(alone);
        replica->update(rule);
        EXPECT_FALSE(replica->result().finite);
      }
      EXPECT_TRUE(step(*replica, scene.rows).finite);
      replica->update(rule);
      states.push_back(replica->read_state());
    }
    EXPECT_EQ(states[1], states[0]);
    EXPECT_EQ(states[1].steps, 2);
  }
}

TEST_P(ReplicaTest, TakesASmallBatchAsAReplicaThatWasMadeForIt) {
  const Scene scene(tutorial_network({1, 28, 28}, 47));
  const auto made_for_more = make(scene, 50);
  const auto made_for_it = make(scene, 2);
  const auto few = std::span(scene.rows).first(2);
  step(*made_for_more, scene.rows);
  made_for_more->write_state(scene.state);
  const StepResult result = step(*made_for_more, few);
  EXPECT_EQ(result.loss_sum, step(*made_for_it, few).loss_sum);
  EXPECT_EQ(made_for_more->read_gradients(), made_for_it->read_gradients());
  EXPECT_EQ(made_for_more->read_state(), made_for_it->read_state());
}

INSTANTIATE_TEST_SUITE_P(Backends, ReplicaTest, testing::ValuesIn(all_backends()), backend_name);

}  // namespace
}  // namespace convnet
