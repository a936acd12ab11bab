// MuonStep == MuonStepReference, bit for bit: gradient types, every hyperparameter, every kind of
// block, strided and misaligned memory, any number of threads, several steps.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/dtype/dtype.h"
#include "core/heads/head_blocks.h"
#include "core/heads/packed_qkv.h"
#include "gtest/gtest.h"
#include "kernels/muon_step/parity.h"

namespace headwise {
namespace {

template <typename G>
class MuonStepBitwise : public testing::Test {};

using GradientTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(MuonStepBitwise, GradientTypes);

HeadBlocks Qkv() { return HeadBlocks::FromPacked(*PackedQkv::Interleaved({4, 2, 16})); }

TYPED_TEST(MuonStepBitwise, EveryHyperparameter) {
  const std::vector<TestWeight<TypeParam>> weights = {TestWeight<TypeParam>(Qkv(), 70, 1)};
  for (const UpdateScale scale : {UpdateScale::kAspect, UpdateScale::kMatchRmsAdamW,
                                  UpdateScale::kSpectral, UpdateScale::kUnit}) {
    for (const bool nesterov : {true, false}) {
      for (const double decay : {0.0, 0.1}) {
        for (const double momentum : {0.95, 0.0}) {
          const MuonHyperparameters hyper = {.learning_rate = 0.03,
                                             .momentum = momentum,
                                             .nesterov = nesterov,
                                             .weight_decay = decay,
                                             .scale = scale};
          ExpectStepParity(hyper, weights,
                           absl::StrCat(Name(scale), ", nesterov ", nesterov, ", decay ", decay,
                                        ", momentum ", momentum));
        }
      }
    }
  }
}

TYPED_TEST(MuonStepBitwise, WeightsOfManyKindsInOneStep) {
  using Weight = TestWeight<TypeParam>;
  std::vector<HeadBlock> columns(2);
  columns[0].ranges = {{30, 20}, {0, 10}};
  columns[1].ranges = {{10, 20}};
  std::vector<Weight> weights = {
      Weight(Qkv(), 300, 1),
      Weight(*Qkv().Coarsen(Granularity::kKvGroup), 65, 2, Layout::kStrided),
      Weight(HeadBlocks::Whole(130), 33, 3),
      Weight(HeadBlocks::Whole(33), 513, 4, Layout::kStrided),
      Weight(*HeadBlocks::Create(50, columns, BlockAxis::kColumns), 70, 5, Layout::kStrided),
      Weight(HeadBlocks::Whole(1), 1, 6),
      Weight(HeadBlocks::Whole(40), 40, 7),
  };
  weights[2].transposed_storage = weights[6].transposed_storage = true;
  for (const int threads : {1, 2, 3}) {
    ExpectStepParity({.weight_decay = 0.1}, weights, absl::StrCat(threads, " threads"), threads);
  }
}

// A block that all threads share.
TYPED_TEST(MuonStepBitwise, LargeBlock) {
  const std::vector<TestWeight<TypeParam>> weights = {
      TestWeight<TypeParam>(HeadBlocks::Whole(540), 250, 7)};
  ExpectStepParity({.weight_decay = 0.1}, weights, "large block");
}

TYPED_TEST(MuonStepBitwise, RestartsAndZeroGradients) {
  const NewtonSchulzCoefficients restarting = {
      .name = "restarting",
      .steps = {{3.5f, -4.75f, 2.0f}, {3.25f, -4.5f, 2.0f}, {2.0f, -1.5f, 0.5f}},
      .restarts_after = {2}};
  std::vector<TestWeight<TypeParam>> weights = {TestWeight<TypeParam>(Qkv(), 70, 8)};
  ExpectStepParity({.coefficients = &restarting}, weights, "restarts");

  // The second head has neither gradient nor momentum: it only decays.
  for (int r = 16; r < 32; ++r) {
    for (int c = 0; c < 70; ++c) {
      weights[0].gradient.at(r, c) = Narrow<TypeParam>(0.0f);
      weights[0].momentum.at(r, c) = 0.0f;
    }
  }
  ExpectStepParity({.weight_decay = 0.5}, weights, "zero head");
  std::vector<TestWeight<TypeParam>> stepped = weights;
  ThreadPool pool(2);
  ASSERT_TRUE(
      MuonStep<TypeParam>({.learning_rate = 0.5, .weight_decay = 0.5}, ViewsOf(stepped), pool)
          .ok());
  for (int c = 0; c < 70; ++c) {
    EXPECT_EQ(stepped[0].weight.at(20, c), weights[0].weight.at(20, c) * 0.75f);
  }
}

TYPED_TEST(MuonStepBitwise, SeveralSteps) {
  std::vector<TestWeight<TypeParam>> expected = {TestWeight<TypeParam>(Qkv(), 70, 9)};
  std::vector<TestWeight<TypeParam>> actual = expected;
  ThreadPool pool(2);
  for (int step = 0; step < 3; ++step) {
    Fill(expected[0].gradient, 100 + step, 0.02);
    actual[0].gradient = expected[0].gradient;
    const MuonHyperparameters hyper = {.learning_rate = 0.02 / (step + 1), .weight_decay = 0.01};
    ASSERT_TRUE(MuonStepReference<TypeParam>(hyper, ViewsOf(expected)).ok());
    ASSERT_TRUE(MuonStep<TypeParam>(hyper, ViewsOf(actual), pool).ok());
  }
  ExpectSameBits<float>(actual[0].weight.view(), expected[0].weight.view(), "weight");
  ExpectSameBits<float>(actual[0].momentum.view(), expected[0].momentum.view(), "momentum");
}

}  // namespace
}  // namespace headwise
