// The CUDA kernels, emulated, return the reference's bits: gradient types, every hyperparameter,
// every kind of block, where the chain runs, strided and misaligned memory, any thread order.
//
// Break it to believe it: leave out a __syncthreads in cuda/chain.cuh, or take rows beyond d in
// cuda/tiled.cuh.
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/dtype/dtype.h"
#include "core/heads/head_blocks.h"
#include "gtest/gtest.h"
#include "kernels/muon_step/emulated_step.h"
#include "kernels/muon_step/test_weights.h"
#include "kernels/newton_schulz/spectra.h"

namespace headwise {
namespace {

template <typename G>
class EmulatedMuonStep : public testing::Test {};

using GradientTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(EmulatedMuonStep, GradientTypes);

constexpr emulation::ThreadOrder kOrders[] = {emulation::ThreadOrder::kForward,
                                              emulation::ThreadOrder::kReverse,
                                              emulation::ThreadOrder::kRandom};

emulation::Options InOrder(emulation::ThreadOrder order, std::uint64_t seed = 1) {
  return {
      .order = order, .seed = seed, .preempt = order == emulation::ThreadOrder::kRandom ? 0.01 : 0};
}

TYPED_TEST(EmulatedMuonStep, EveryHyperparameter) {
  const std::vector<TestWeight<TypeParam>> weights = {TestWeight<TypeParam>(QkvBlocks(), 70, 1)};
  for (const UpdateScale scale : {UpdateScale::kAspect, UpdateScale::kMatchRmsAdamW,
                                  UpdateScale::kSpectral, UpdateScale::kUnit}) {
    for (const bool nesterov : {true, false}) {
      for (const double decay : {0.0, 0.1}) {
        for (const double momentum : {0.95, 0.0}) {
          const MuonHyperparameters hyper = {.learning_rate = 0.03,
                                             .momentum = momentum,
                                             .nesterov = nesterov,
                                             .weight_decay = decay,
                                             .gradient_scale = decay == 0 ? 1.0 : 0.7,
                                             .scale = scale};
          ExpectEmulatedParity(hyper, weights,
                               absl::StrCat(Name(scale), ", nesterov ", nesterov, ", decay ", decay,
                                            ", momentum ", momentum));
        }
      }
    }
  }
}

// The products with the learning rate are of doubles. These two show it.
TYPED_TEST(EmulatedMuonStep, RatesAreRoundedOnce) {
  const MuonHyperparameters hyper = {.learning_rate = 0.3, .weight_decay = 0.3};
  ASSERT_NE(static_cast<float>(1 - 0.3 * 0.3), 1 - static_cast<float>(0.3 * 0.3));
  ExpectEmulatedParity<TypeParam>(hyper, {TestWeight<TypeParam>(QkvBlocks(), 70, 1)}, "decay");
}

TYPED_TEST(EmulatedMuonStep, WeightsOfManyKindsInOneStep) {
  const std::vector<TestWeight<TypeParam>> weights = WeightsOfManyKinds<TypeParam>();
  for (const emulation::ThreadOrder order : kOrders) {
    ExpectEmulatedParity({.weight_decay = 0.1}, weights,
                         absl::StrCat("order ", static_cast<int>(order)),
                         {.emulation = InOrder(order)});
  }
}

TYPED_TEST(EmulatedMuonStep, WeightsOfManyKindsInTheScratch) {
  const std::vector<TestWeight<TypeParam>> weights = WeightsOfManyKinds<TypeParam>();
  for (const emulation::ThreadOrder order : kOrders) {
    ExpectEmulatedParity({.weight_decay = 0.1}, weights,
                         absl::StrCat("order ", static_cast<int>(order)),
                         {.emulation = InOrder(order), .chain = MuonChainMemory::kScratch});
  }
}

// Both ways to keep a block of 65 to 128 rows on chip.
TYPED_TEST(EmulatedMuonStep, SquaresAndTriangles) {
  for (const std::int64_t d : {65, 96, 127, 128}) {
    const std::vector<TestWeight<TypeParam>> weights = {
        TestWeight<TypeParam>(HeadBlocks::Whole(d), d + 9, d)};
    for (const MuonChainMemory chain : {MuonChainMemory::kAuto, MuonChainMemory::kTriangles}) {
      const auto order = kOrders[d % std::size(kOrders)];
      ExpectEmulatedParity({.weight_decay = 0.1}, weights,
                           absl::StrCat(d, " rows, chain ", static_cast<int>(chain)),
                           {.emulation = InOrder(order), .chain = chain});
    }
  }
}

TYPED_TEST(EmulatedMuonStep, BlocksOfMoreThan128Rows) {
  using Weight = TestWeight<TypeParam>;
  std::vector<Weight> weights = {Weight(HeadBlocks::Whole(129), 200, 1),
                                 Weight(HeadBlocks::Whole(300), 150, 2, Layout::kStrided),
                                 Weight(HeadBlocks::Whole(144), 144, 3)};
  weights[2].transposed_storage = true;
  for (const emulation::ThreadOrder order : kOrders) {
    ExpectEmulatedParity({.weight_decay = 0.1}, weights,
                         absl::StrCat("order ", static_cast<int>(order)),
                         {.emulation = InOrder(order)});
  }
}

// Numbers of rows and columns around those that tiles, stages and chunks divide into, and numbers of
// chunks that are no powers of two.
TYPED_TEST(EmulatedMuonStep, OddSizes) {
  std::uint64_t seed = 0;
  for (const std::int64_t d : {1, 2, 3, 4, 5, 15, 17, 63, 64, 66}) {
    for (const std::int64_t n :
         {d, d + 1, std::int64_t{256}, std::int64_t{257}, std::int64_t{700}}) {
      ++seed;
      const bool tall = seed % 2 == 0;
      const std::vector<TestWeight<TypeParam>> weights = {
          TestWeight<TypeParam>(HeadBlocks::Whole(tall ? n : d), tall ? d : n, seed,
                                seed % 3 == 0 ? Layout::kStrided : Layout::kContiguous)};
      for (const MuonChainMemory chain : {MuonChainMemory::kAuto, MuonChainMemory::kScratch}) {
        if (chain == MuonChainMemory::kScratch && seed % 4 != 0) continue;
        ExpectEmulatedParity({}, weights, absl::StrCat(d, " x ", n, ", tall ", tall),
                             {.emulation = InOrder(kOrders[seed % 3], seed), .chain = chain});
      }
    }
  }
}

// Packed projections of which a step gets rows: three weights in the rows of one buffer.
TYPED_TEST(EmulatedMuonStep, RowsOfOneBuffer) {
  using G = TypeParam;
  TestWeight<G> whole(HeadBlocks::Whole(96), 132, 5);
  const HeadBlocks queries = *HeadBlocks::Separate(HeadRole::kQuery, 4, 16, 2);
  const HeadBlocks keys = *HeadBlocks::Separate(HeadRole::kKey, 2, 16, 1);
  const auto parts = [&](TestWeight<G>& w) {
    const auto rows = [&](std::int64_t begin, std::int64_t count, const HeadBlocks& blocks) {
      return MuonWeight<G>{.weight = w.weight.span().Rows(begin, count),
                           .momentum = w.momentum.span().Rows(begin, count),
                           .gradient = w.gradient.view().Rows(begin, count),
                           .blocks = &blocks};
    };
    return std::vector<MuonWeight<G>>{rows(0, 64, queries), rows(64, 32, keys)};
  };
  TestWeight<G> expected = whole, actual = whole;
  ASSERT_TRUE(MuonStepReference<G>({}, parts(expected)).ok());
  const std::vector<MuonWeight<G>> views = parts(actual);
  absl::StatusOr<MuonStepPlan> plan = MuonStepPlan::Create<G>({}, views);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EmulatedStep step(*std::move(plan), {}, /*skip=*/0);
  emulation::Session session;
  step.AddRegions(views, session);
  const absl::Status status = cuda_emulated::MuonStep(step.plan(), step.launch());
  ASSERT_TRUE(status.ok()) << status;
  ExpectSameBits<float>(actual.weight.view(), expected.weight.view(), "weight");
  ExpectSameBits<float>(actual.momentum.view(), expected.momentum.view(), "momentum");
}

TYPED_TEST(EmulatedMuonStep, Restarts) {
  const NewtonSchulzCoefficients restarting = {.name = "restarting",
                                               .steps = {{3.5f, -4.75f, 2.0f},
                                                         {3.25f, -4.5f, 2.0f},
                                                         {3.0f, -3.0f, 1.0f},
                                                         {2.0f, -1.5f, 0.5f}},
                                               .restarts_after = {2, 3}};
  for (const MuonChainMemory chain : {MuonChainMemory::kAuto, MuonChainMemory::kScratch}) {
    ExpectEmulatedParity({.weight_decay = 0.1, .coefficients = &restarting},
                         WeightsOfManyKinds<TypeParam>(),
                         absl::StrCat("chain ", static_cast<int>(chain)), {.chain = chain});
  }
  ExpectEmulatedParity<TypeParam>({.coefficients = &PolarExpress8()},
                                  {TestWeight<TypeParam>(QkvBlocks(), 70, 8)}, "polar_express8");
  ExpectEmulatedParity<TypeParam>({.coefficients = &PolarExpress8()},
                                  {TestWeight<TypeParam>(HeadBlocks::Whole(132), 140, 8)},
                                  "polar_express8, tiled");
}

// The block that is orthogonalised has the spectrum: without momentum u is the gradient.
TYPED_TEST(EmulatedMuonStep, SevenSpectra) {
  struct Case {
    std::int64_t rows, cols;
    MuonChainMemory chain;
  };
  for (const Case c :
       {Case{24, 72, MuonChainMemory::kAuto}, Case{64, 64, MuonChainMemory::kAuto},
        Case{140, 80, MuonChainMemory::kTriangles}, Case{72, 100, MuonChainMemory::kScratch}}) {
    std::vector<TestWeight<TypeParam>> weights;
    for (const MakeSpectrum make : kSevenSpectra) {
      const DoubleMatrix m = make(c.rows, c.cols, /*seed=*/weights.size());
      TestWeight<TypeParam>& w =
          weights.emplace_back(HeadBlocks::Whole(c.rows), c.cols, weights.size());
      for (std::int64_t i = 0; i < c.rows; ++i) {
        for (std::int64_t j = 0; j < c.cols; ++j) {
          w.gradient.at(i, j) = Narrow<TypeParam>(static_cast<float>(m.at(i, j)));
        }
      }
    }
    for (const NewtonSchulzCoefficients* set : {&Quintic5(), &PolarExpress8()}) {
      ExpectEmulatedParity({.momentum = 0, .coefficients = set}, weights,
                           absl::StrCat(set->name, ", ", c.rows, " x ", c.cols),
                           {.chain = c.chain});
    }
  }
}

// Blocks of zeros, of subnormals, and of magnitudes that are brought into range by a power of two,
// beside ordinary ones.
TYPED_TEST(EmulatedMuonStep, MagnitudesOutOfRange) {
  for (const std::int64_t cols : {70, 516}) {
    const TestWeight<TypeParam> w = WeightOfManyMagnitudes<TypeParam>(cols);
    for (const MuonChainMemory chain : {MuonChainMemory::kAuto, MuonChainMemory::kScratch}) {
      for (const NewtonSchulzCoefficients* set : {&Quintic5(), &PolarExpress8()}) {
        ExpectEmulatedParity<TypeParam>({.weight_decay = 0.5, .coefficients = set}, {w},
                                        absl::StrCat(set->name, ", ", cols, " columns"),
                                        {.chain = chain});
      }
    }
  }
}

// The tree over chunks has another shape for each number of them.
TYPED_TEST(EmulatedMuonStep, NumbersOfChunks) {
  for (const std::int64_t chunks : {2, 3, 4, 5, 6, 7, 8, 9, 13, 17}) {
    const std::vector<TestWeight<TypeParam>> weights = {
        TestWeight<TypeParam>(HeadBlocks::Whole(6), 256 * chunks - 3, chunks)};
    for (const MuonChainMemory chain : {MuonChainMemory::kAuto, MuonChainMemory::kScratch}) {
      ExpectEmulatedParity({}, weights, absl::StrCat(chunks, " chunks"), {.chain = chain});
    }
  }
}

TYPED_TEST(EmulatedMuonStep, SeveralStepsOfOnePlan) {
  std::vector<TestWeight<TypeParam>> expected = {TestWeight<TypeParam>(QkvBlocks(), 70, 9)};
  std::vector<TestWeight<TypeParam>> actual = expected;
  const MuonHyperparameters hyper = {.learning_rate = 7, .weight_decay = 0.01};
  const std::vector<MuonWeight<TypeParam>> views = ViewsOf(actual);
  absl::StatusOr<MuonStepPlan> plan = MuonStepPlan::Create<TypeParam>(hyper, views);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EmulatedStep emulated(*std::move(plan), hyper, /*skip=*/0);
  for (int step = 0; step < 3; ++step) {
    Fill(expected[0].gradient, 100 + step, 0.02);
    for (std::int64_t r = 0; r < actual[0].gradient.rows();
         ++r) {  // in place: the plan has its address
      for (std::int64_t c = 0; c < actual[0].gradient.width(); ++c) {
        actual[0].gradient.at(r, c) = expected[0].gradient.at(r, c);
      }
    }
    MuonHyperparameters now = hyper;
    now.learning_rate = 0.02 / (step + 1);
    now.gradient_scale = 1.0 / (step + 1);
    ASSERT_TRUE(MuonStepReference<TypeParam>(now, ViewsOf(expected)).ok());
    emulated.scalars().learning_rate = now.learning_rate;
    emulated.scalars().gradient_scale = now.gradient_scale;
    ASSERT_TRUE(cuda_emulated::MuonStep(emulated.plan(), emulated.launch()).ok());
  }
  ExpectSameBits<float>(actual[0].weight.view(), expected[0].weight.view(), "weight");
  ExpectSameBits<float>(actual[0].momentum.view(), expected[0].momentum.view(), "momentum");
}

TYPED_TEST(EmulatedMuonStep, ASkippedStepWritesNothing) {
  for (const MuonChainMemory chain : {MuonChainMemory::kAuto, MuonChainMemory::kScratch}) {
    const std::vector<TestWeight<TypeParam>> before = WeightsOfManyKinds<TypeParam>();
    std::vector<TestWeight<TypeParam>> after = before;
    ASSERT_TRUE(StepEmulated({}, after, {.chain = chain, .skip = 1}).ok());
    for (std::size_t i = 0; i < before.size(); ++i) {
      ExpectSameBits<float>(after[i].weight.view(), before[i].weight.view(), "weight");
      ExpectSameBits<float>(after[i].momentum.view(), before[i].momentum.view(), "momentum");
    }
  }
}

}  // namespace
}  // namespace headwise
