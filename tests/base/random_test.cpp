#include "convnet/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>

#include "convnet/sha256.hpp"

namespace convnet {
namespace {

// Recorded from PyTorch 2.13, each after torch.manual_seed(seed):
//   hashlib.sha256(torch.empty(1000).uniform_(-0.2, 0.2).numpy().tobytes()).hexdigest()
//   hashlib.sha256(torch.randperm(60000).int().numpy().tobytes()).hexdigest()
struct Recorded {
  std::uint64_t seed;
  std::string uniform_sha256;
  std::string permutation_sha256;
};
constexpr std::uint64_t kTwoTo31 = std::uint64_t{1} << 31;
constexpr std::uint64_t kTwoTo32 = std::uint64_t{1} << 32;
const Recorded kRecorded[] = {
    {0, "5226cf246e29e49ef90e2d354b464133dfddd91ce35f2490ee32647fc0d4da35",
     "52a942414667661f95ad16a1ea3b98b9e5e0bbcca787973c1ce75f7346e22a6d"},
    {12345, "950c821fe3c3c42444429b685d1fdef3ee1c4e4be16a769cc349533c8630349a",
     "7dc6ac61e75861517fa6c364c0e4a07c9f6391a155d0ca375976eb928a319bec"},
    {kTwoTo31 + 7, "abda806cee36b568ea764b43f215f26dfbb5d7d09222e3954606737bf5966026",
     "47309cba306d2ddea1ab448884c98468ccd95f27faeb60739d7cd2814b8e2dab"},
    {kTwoTo32 + 7, "97ef086464cad0312bb15f0ae5a9f66b3a4a0e47263fd9f000303c230ee121d0",
     "4d24cbee4077b468bd76b4391efdf8645f2baf3bd49e4c4ef38d94c3887e747d"},
};

TEST(TorchGenerator, DrawsTheFloatsThatPyTorchDraws) {
  for (const Recorded& recorded : kRecorded) {
    TorchGenerator generator(recorded.seed);
    std::vector<float> values(1000);
    std::ranges::generate(values, [&] { return generator.uniform(-0.2F, 0.2F); });
    EXPECT_EQ(sha256_of(std::as_bytes(std::span(values))), recorded.uniform_sha256)
        << "seed " << recorded.seed;
  }
}

TEST(TorchGenerator, DrawsThePermutationsThatPyTorchDraws) {
  for (const Recorded& recorded : kRecorded) {
    TorchGenerator generator(recorded.seed);
    const std::vector<std::int32_t> order = generator.permutation(60000);
    EXPECT_EQ(sha256_of(std::as_bytes(std::span(order))), recorded.permutation_sha256)
        << "seed " << recorded.seed;
  }
}

TEST(TorchGenerator, GivesFloatsAndPermutationsFromOneStream) {
  // torch.manual_seed(0); torch.rand(2); torch.randperm(6); torch.rand(1)
  TorchGenerator generator(0);
  EXPECT_EQ(generator.uniform(0.0F, 1.0F), 0.49625658988952637F);
  EXPECT_EQ(generator.uniform(0.0F, 1.0F), 0.7682217955589294F);
  EXPECT_EQ(generator.permutation(6), (std::vector<std::int32_t>{5, 1, 0, 3, 2, 4}));
  EXPECT_EQ(generator.uniform(0.0F, 1.0F), 0.8964447379112244F);
}

TEST(TorchGenerator, DrawsNothingForAPermutationOfOne) {
  // torch.manual_seed(0); torch.randperm(1); torch.rand(1)
  TorchGenerator generator(0);
  EXPECT_EQ(generator.permutation(1), std::vector<std::int32_t>{0});
  EXPECT_EQ(generator.permutation(0), std::vector<std::int32_t>{});
  EXPECT_EQ(generator.uniform(0.0F, 1.0F), 0.49625658988952637F);
}

}  // namespace
}  // namespace convnet
