#include "convnet/model_state.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "convnet/error.hpp"
#include "golden/golden.hpp"

namespace convnet {
namespace {

const Network kTutorial = tutorial_network({1, 28, 28}, 10);

TEST(StateLayout, ListsTheTensorsInPyTorchsOrder) {
  const StateLayout layout(kTutorial);
  std::vector<std::string> names;
  std::ranges::transform(layout.tensors(), std::back_inserter(names), &TensorInfo::name);
  EXPECT_EQ(names, (std::vector<std::string>{"layer1.0.weight", "layer1.0.bias", "layer1.1.weight",
                                             "layer1.1.bias", "layer1.1.running_mean", "layer1.1.running_var",
                                             "layer2.0.weight", "layer2.0.bias", "layer2.1.weight",
                                             "layer2.1.bias", "layer2.1.running_mean", "layer2.1.running_var",
                                             "fc.weight", "fc.bias"}));
}

TEST(StateLayout, LaysTensorsOutOneBehindTheOther) {
  const StateLayout layout(kTutorial);
  EXPECT_EQ(layout.parameter_count(), 29034);
  EXPECT_EQ(layout.buffer_count(), 2 * 16 + 2 * 32);
  EXPECT_EQ(layout.tensor("layer2.0.weight").shape, (std::vector<std::int64_t>{32, 16, 5, 5}));
  EXPECT_EQ(layout.tensor("layer2.0.weight").offset, 16 * 25 + 3 * 16);
  EXPECT_EQ(layout.tensor("layer2.1.running_var").offset, 2 * 16 + 32);
  EXPECT_EQ(layout.tensor("fc.bias").offset, 29034 - 10);
  EXPECT_THROW(layout.tensor("fc.wieght"), Error);
}

TEST(StateLayout, FollowsTheShapeOfTheImages) {
  const StateLayout layout(tutorial_network({3, 32, 40}, 47));
  EXPECT_EQ(layout.tensor("layer1.0.weight").shape, (std::vector<std::int64_t>{16, 3, 5, 5}));
  EXPECT_EQ(layout.tensor("fc.weight").shape, (std::vector<std::int64_t>{47, 32 * 8 * 10}));
}

class RecordedRun : public testing::TestWithParam<std::string> {};

TEST_P(RecordedRun, StartsFromTheseWeightsBitForBit) {
  EXPECT_EQ(initial_state(kTutorial, 0), GoldenFile(GetParam()).state("/init", StateLayout(kTutorial)));
}

INSTANTIATE_TEST_SUITE_P(InitialState, RecordedRun,
                         testing::Values("seed_world1.h5", "seed_world2.h5", "seed_world4.h5"));

// Recorded from PyTorch 2.13, with ConvNet of tests/golden/make_reference.py:
//   torch.manual_seed(seed); net = ConvNet()
//   hashlib.sha256(b"".join(t.numpy().tobytes() for name, t in net.state_dict().items()
//                           if not name.endswith("num_batches_tracked"))).hexdigest()
TEST(InitialState, IsPyTorchsForAnySeed) {
  const StateLayout layout(kTutorial);
  const auto sum = [&](std::uint64_t seed) { return weights_sha256(layout, initial_state(kTutorial, seed)); };
  constexpr std::uint64_t kTwoTo31 = std::uint64_t{1} << 31;
  constexpr std::uint64_t kTwoTo32 = std::uint64_t{1} << 32;
  EXPECT_EQ(sum(0), "fe2257fc3ace0c061bda823f6805292c0c293cc087bf6e8c9c08606a39e4f8d1");
  EXPECT_EQ(sum(12345), "1da0abb4b8d3f65996ef7b422beaf61c860ddb6fd2a6e278c31f5d2ca3c420a8");
  EXPECT_EQ(sum(kTwoTo31 + 7), "ac2435cf6dfa03716a0f1da0f7252cae57502ab06b2d2a8618200bbc1aab9dbf");
  EXPECT_EQ(sum(kTwoTo32 + 7), "2f359c295d051574c1ef933f92baf3351268e5c60d3d0ec748557e4a97a919e4");
}

// As above, with nn.Conv2d(3, 16, 5, 1, 2) in front and nn.Linear(32 * 8 * 10, 47) at the end.
TEST(InitialState, IsPyTorchsForOtherImagesAndClasses) {
  const Network network = tutorial_network({3, 32, 40}, 47);
  EXPECT_EQ(weights_sha256(StateLayout(network), initial_state(network, 12345)),
            "1b5ccb6e775f147d702108164de8231ceeadcdda02b4353bc9372fb20f60a795");
}

}  // namespace
}  // namespace convnet
