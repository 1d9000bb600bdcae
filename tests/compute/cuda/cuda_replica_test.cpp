// What the CUDA back end has that others have not: graphs, other kernels, precisions.
#include "compute/cuda/cuda_replica.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "compute/backend_test.hpp"
#include "compute/cpu/cpu_replica.hpp"
#include "compute/cuda/device_communicator.hpp"
#include "compute/cuda/step_graphs.hpp"
#include "compute/cuda/training.hpp"
#include "compute/cuda/transfer.hpp"
#include "compute/lone_communicator.hpp"
#include "compute/network_tolerance.hpp"
#include "convnet/error.hpp"

namespace convnet {
namespace {

constexpr CudaOptions kQueued{.deterministic = true, .graph = CudaGraph::kOff};

// A batch without equal values in any pooling window: cuDNN does not say which of equal maxima it takes.
struct NoiseScene {
  Network network{{2, 11, 9}, {{.out_channels = 6, .kernel = 3, .padding = 1}, {.out_channels = 5}}, 7};
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels{3, 0, 6, 1, 3};
  std::vector<std::int32_t> rows{4, 0, 3, 1, 2};
  Dataset dataset;

  NoiseScene() {
    for (const float value : random_values(5 * network.input.size(), 0.0F, 256.0F, 3)) {
      images.push_back(static_cast<std::uint8_t>(value));
    }
    const SplitView split{{0, 5}, images, labels};
    dataset = {{.shape = network.input,
                .classes = network.classes,
                .train_count = 5,
                .test_count = 5,
                .sources = {}},
               split,
               split,
               nullptr};
  }
};

class CudaReplica : public testing::Test {
 protected:
  void SetUp() override { skip_unless_available(cuda_backend("any", {}).unavailable); }

  // A step of the scene up to the update.
  static std::unique_ptr<Replica> step(const NoiseScene& scene, const ModelState& state,
                                       const CudaOptions& options) {
    LoneCommunicator alone;
    auto replica = cuda_backend("any", options).make_replica({.network = scene.network, .max_batch = 5});
    replica->load(scene.dataset);
    replica->write_state(state);
    replica->forward_backward(scene.rows, 0.2F);
    replica->all_reduce_gradients(alone);
    return replica;
  }

  // That a step of these options gives what the judge gives.
  static void expect_as_judged(const CudaOptions& options) {
    const NoiseScene scene;
    const ModelState state =
        clear_state(scene.network, scene.dataset, scene.rows, clear_margin(scene.network));
    const auto replica = step(scene, state, options);
    judge::State judged(state);
    const auto expected = forward_backward(scene.network, judged,
                                           batch_of(scene.dataset.train, scene.network.input, scene.rows),
                                           labels_of(scene.dataset.train, scene.rows), 0.2);
    const StepResult found = replica->result();
    EXPECT_EQ(found.correct, expected.loss.correct);
    EXPECT_NEAR(found.loss_sum, expected.loss.sum, loss_tolerance(scene.network, expected.loss));
    EXPECT_TRUE(all_within(replica->read_gradients(), expected.gradients,
                           gradient_tolerances(scene.network, expected)));
    EXPECT_TRUE(
        all_within(replica->read_state().buffers, judged.buffers, buffer_tolerances(scene.network, judged)));
    judge::State trained(replica->read_state());
    const auto tested =
        evaluate(scene.network, trained, batch_of(scene.dataset.test, scene.network.input, scene.rows),
                 labels_of(scene.dataset.test, scene.rows));
    const EvalResult evaluated = replica->evaluate(scene.rows);
    EXPECT_EQ(evaluated.correct, tested.correct);
    EXPECT_NEAR(evaluated.loss_sum, tested.sum, loss_tolerance(scene.network, tested));
  }

  LoneCommunicator alone_;
};

std::vector<UpdateRule> rules() {
  return {{.learning_rate = 0.05},
          {.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.01},
          {.learning_rate = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01},
          {.learning_rate = 0.05, .momentum = 0.9, .clip_norm = 0.1},
          {.optimizer = Optimizer::kAdamW, .learning_rate = 0.01, .weight_decay = 0.01}};
}

TEST_F(CudaReplica, GivesWithAGraphTheBitsOfStepsThatAreQueuedPieceByPiece) {
  for (const UpdateRule& rule : rules()) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      for (const Kernels kernels : {Kernels::kFused, Kernels::kCudnn}) {
        CudaOptions options = kQueued;
        options.precision = precision;
        options.kernels = kernels;
        const TrainingResult queued = train(options, {.rule = rule}, alone_);
        options.graph = CudaGraph::kOn;
        const TrainingResult captured = train(options, {.rule = rule}, alone_);
        EXPECT_EQ(captured.state, queued.state);
        EXPECT_EQ(captured.last.loss_sum, queued.last.loss_sum);
        EXPECT_EQ(captured.last.correct, queued.last.correct);
        EXPECT_NE(captured.state.parameters, random_state(Training().network, 1).parameters);
      }
    }
  }
}

// Four steps an epoch, the last of them short: it ends a launch's steps, and so does whoever asks for a loss.
TEST_F(CudaReplica, GivesTheSameBitsHoweverManyStepsALaunchHas) {
  for (const UpdateRule& rule : rules()) {
    for (const int asks_after : {0, 5}) {
      const Training training{.rule = rule, .epochs = 7, .asks_after = asks_after};
      const TrainingResult expected = train({.deterministic = true}, training, alone_);
      for (const int steps : {2, 3, 7, kMostStepsPerLaunch}) {
        SCOPED_TRACE(steps);
        const TrainingResult found =
            train({.deterministic = true, .steps_per_launch = steps}, training, alone_);
        EXPECT_EQ(found.state, expected.state);
        EXPECT_EQ(found.losses, expected.losses);
        EXPECT_EQ(found.last.loss_sum, expected.last.loss_sum);
        EXPECT_EQ(found.state.steps, 28);
      }
    }
  }
}

TEST_F(CudaReplica, GivesTheSameBitsForSeveralStepsALaunchOfRowsThatWereNotAnnounced) {
  const CudaOptions options{.deterministic = true, .steps_per_launch = 3};
  EXPECT_EQ(train(options, {}, alone_).state, train(options, {.announces_rows = false}, alone_).state);
}

TEST_F(CudaReplica, StopsAtAStepThatIsNotFiniteAlsoInTheMiddleOfALaunch) {
  const Training training{.rule = {.learning_rate = 1e30}, .epochs = 6};
  const TrainingResult result = train({.deterministic = true, .steps_per_launch = 3}, training, alone_);
  EXPECT_FALSE(result.last.finite);
  EXPECT_EQ(result.state.steps, train(kQueued, training, alone_).state.steps);
}

TEST_F(CudaReplica, GivesTheSameBitsWhetherOrNotSomebodyAsksBetweenTheHalvesOfAStep) {
  const CudaOptions options{.deterministic = true};
  EXPECT_EQ(train(options, {}, alone_).state, train(options, {.asks_each_step = true}, alone_).state);
}

TEST_F(CudaReplica, GivesTheSameBitsForRowsThatWereNotAnnounced) {
  const CudaOptions options{.deterministic = true};
  EXPECT_EQ(train(options, {}, alone_).state, train(options, {.announces_rows = false}, alone_).state);
}

TEST_F(CudaReplica, GivesTheSameBitsAgainWhereItIsDeterministic) {
  const CudaOptions options{.deterministic = true};
  EXPECT_EQ(train(options, {}, alone_).state, train(options, {}, alone_).state);
}

TEST_F(CudaReplica, StopsAtAStepThatIsNotFiniteAlsoWithinAGraph) {
  const Training training{.rule = {.learning_rate = 1e30}};
  const TrainingResult result = train({.deterministic = true}, training, alone_);
  EXPECT_FALSE(result.last.finite);
  EXPECT_LT(result.state.steps, 12);
  EXPECT_EQ(result.state.steps, train(kQueued, training, alone_).state.steps);
}

TEST_F(CudaReplica, SkipsAStepThatIsNotFiniteAlsoWithinAGraph) {
  const Training training;
  const auto state_after = [&](const std::vector<float>& scales) {
    const auto replica =
        cuda_backend("any", {.deterministic = true, .graph = CudaGraph::kOn})
            .make_replica({.network = training.network, .max_batch = 5, .skip_nonfinite = true});
    train(*replica, {.epochs = 1}, alone_);
    const std::vector<std::int32_t> rows{0, 1, 2, 3, 4};
    for (const float scale : scales) {
      replica->forward_backward(rows, scale);
      replica->all_reduce_gradients(alone_);
      replica->update(training.rule);
    }
    return replica->read_state();
  };
  constexpr float kBad = std::numeric_limits<float>::infinity();
  EXPECT_EQ(state_after({0.2F, 0.2F, 0.2F, kBad, 0.2F}), state_after({0.2F, 0.2F, 0.2F, 0.2F}));
}

TEST_F(CudaReplica, ChangesTheUpdateRuleInTheMiddleOfARun) {
  const Training first{.epochs = 2};
  Training second{.rule = rules().back(), .epochs = 2};
  std::vector<ModelState> states;
  for (const CudaGraph graph : {CudaGraph::kOn, CudaGraph::kOff}) {
    const auto replica = cuda_backend("any", {.deterministic = true, .graph = graph})
                             .make_replica({.network = first.network, .max_batch = 5});
    train(*replica, first, alone_);
    states.push_back(train(*replica, second, alone_).state);
  }
  EXPECT_EQ(states[0], states[1]);
  EXPECT_EQ(states[0].moments.size(), 2U);
}

TEST_F(CudaReplica, GivesWhatTheJudgeGivesWithOurKernelsAndWithCudnns) {
  expect_as_judged({.kernels = Kernels::kFused});
  expect_as_judged({.kernels = Kernels::kCudnn});
}

TEST_F(CudaReplica, GivesWhatTheJudgeGivesWithMeasuredAlgorithms) {
  expect_as_judged({.autotune = true});
  expect_as_judged({.autotune = true, .deterministic = true});
}

// A lower precision rounds operands to 2^-11 or 2^-8 of their size instead of 2^-24.
TEST_F(CudaReplica, LosesAsManyDigitsAsThePrecisionSays) {
  const NoiseScene scene;
  const ModelState state = random_state(scene.network, 1);
  judge::State judged(state);
  const auto expected =
      forward_backward(scene.network, judged, batch_of(scene.dataset.train, scene.network.input, scene.rows),
                       labels_of(scene.dataset.train, scene.rows), 0.2);
  const double exact = loss_tolerance(scene.network, expected.loss);
  const auto distance = [&](Precision precision, Kernels kernels) {
    const auto replica = step(scene, state, {.precision = precision, .kernels = kernels});
    return std::abs(replica->result().loss_sum - expected.loss.sum);
  };
  for (const Kernels kernels : {Kernels::kFused, Kernels::kCudnn}) {
    EXPECT_LE(distance(Precision::kFp32, kernels), exact);
    EXPECT_GT(distance(Precision::kTf32, kernels), exact);
    EXPECT_LE(distance(Precision::kTf32, kernels), exact * 0x1p13);
    EXPECT_GT(distance(Precision::kBf16, kernels), exact);
    EXPECT_LE(distance(Precision::kBf16, kernels), exact * 0x1p16);
  }
}

TEST_F(CudaReplica, TrainsFromAStateAsTheCpuBackEndDoes) {
  const auto cpu = [&](const Training& training) {
    const auto replica = make_cpu_replica({.network = training.network, .max_batch = training.batch});
    return train(*replica, training, alone_);
  };
  for (const UpdateRule& rule : rules()) {
    const Training training{.rule = rule, .epochs = 1, .rows = 5};  // one step
    const TrainingResult expected = cpu(training);
    const TrainingResult found = train({}, training, alone_);
    // The gradients of one step differ by their rounding alone, and the update passes it on: AdamW's first
    // step is the sign of the gradient, whose rounding shows only where it is of the size of epsilon.
    constexpr double kBlock = 64.0;
    EXPECT_NEAR(found.last.loss_sum, expected.last.loss_sum, tolerance(kBlock, expected.last.loss_sum));
    if (rule.optimizer == Optimizer::kSgd) {
      EXPECT_TRUE(
          all_within(found.state.parameters,
                     judge::Doubles(expected.state.parameters.begin(), expected.state.parameters.end()),
                     tolerance(kBlock, 2.0)));
    }
    EXPECT_TRUE(all_within(found.state.buffers,
                           judge::Doubles(expected.state.buffers.begin(), expected.state.buffers.end()),
                           tolerance(kBlock, 2.0)));
    EXPECT_EQ(found.state.steps, expected.state.steps);
  }
}

TEST_F(CudaReplica, HandsItsStateToTheCpuBackEndAndTakesItBack) {
  const Training training{.rule = rules().back()};
  const ModelState state = train({}, training, alone_).state;
  const auto cpu = make_cpu_replica({.network = training.network, .max_batch = 5});
  cpu->write_state(state);
  const auto back = cuda_backend("any", {}).make_replica({.network = training.network, .max_batch = 5});
  back->write_state(cpu->read_state());
  EXPECT_EQ(back->read_state(), state);
}

// With one GPU no replica needs NCCL: here it is made to do all that it does between several.
TEST_F(CudaReplica, SumsOverOneRankByNcclQueuedAndCaptured) {
  constexpr std::size_t kCount = 1000;
  const cuda::Stream stream = cuda::make_stream();
  const cuda::NcclArray<float> values(kCount);
  const std::unique_ptr<cuda::DeviceCommunicator> communicator =
      cuda::make_device_communicator(alone_, {}, {values.data(), values.bytes()});
  cuda::StepGraphs graphs;
  const Floats numbers = random_values(kCount, -1.0F, 1.0F, 1);
  const cuda::Event done = cuda::make_event();
  for (int step = 0; step < 4; ++step) {  // queued, captured, launched, launched
    cuda::upload(stream.get(), std::span(numbers), values.data());
    graphs.run(stream.get(), {.batch = 1}, [&] {
      communicator->start_sum(stream.get(), values.data(), kCount / 2);
      communicator->start_sum(stream.get(), values.data() + kCount / 2, kCount / 2);
      communicator->finish(stream.get());
    });
    const cuda::PinnedArray<float> sums(kCount);
    cuda::check(
        cudaMemcpyAsync(sums.data(), values.data(), sums.bytes(), cudaMemcpyDeviceToHost, stream.get()),
        "cudaMemcpyAsync");
    cuda::check(cudaEventRecord(done.get(), stream.get()), "cudaEventRecord");
    communicator->wait(done.get());
    EXPECT_EQ(Floats(sums.data(), sums.data() + kCount), numbers);
  }
}

TEST_F(CudaReplica, RefusesMoreBucketsThanTheNetworkHasLayers) {
  try {
    train({.buckets = 4}, {}, alone_);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_STREQ(error.what(), "--buckets is 4: expected at most the network's layers, which are 3");
  }
}

}  // namespace
}  // namespace convnet
