// The step on emulated tensor cores: the error bound of cuda.h on seven spectra and every kind of
// block, momentum bit for bit, no trace of the order of threads or of powers of two, and what a step
// moves and launches.
//
// Break it to believe it: leave out a product of SplitSums::Add (cuda/tensor.cuh), or the scaling of
// the sums in cuda/tensor_gram.cuh.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/dtype/dtype.h"
#include "core/heads/head_blocks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/muon_step/double_step.h"
#include "kernels/muon_step/emulated_step.h"
#include "kernels/muon_step/test_weights.h"
#include "kernels/newton_schulz/spectra.h"

namespace headwise {
namespace {

constexpr EmulatedOptions kTensorCores = {.mode = MuonMode::kTensorCore};

// By which the error is less than the bound at least: GPUs make their sums in another order.
constexpr double kMargin = 4;

// docs/numerics.md, 7.
template <typename G>
TestMatrix<float> NewMomentum(const MuonHyperparameters& hyper, const TestWeight<G>& before) {
  TestMatrix<float> m = before.momentum;
  const float rate = 1.0f - static_cast<float>(hyper.momentum);
  for (std::int64_t r = 0; r < m.rows(); ++r) {
    for (std::int64_t c = 0; c < m.width(); ++c) {
      m.at(r, c) = std::fma(rate, Widen(before.gradient.at(r, c)) - m.at(r, c), m.at(r, c));
    }
  }
  return m;
}

// The error of every block is within the bound; momentum has the reference's bits, and nothing else is
// written. Returns the largest error.
template <typename G>
double ExpectWithinBound(const MuonHyperparameters& hyper, std::vector<TestWeight<G>> before,
                         const std::string& what, const EmulatedOptions& options = kTensorCores) {
  for (TestWeight<G>& w : before) SetZero(w.weight);
  std::vector<TestWeight<G>> after = before;
  const absl::Status status = StepEmulated(hyper, after, options);
  EXPECT_TRUE(status.ok()) << what << ": " << status;
  double worst = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const std::string which = absl::StrCat(what, ", weight ", i);
    ExpectSameBits<float>(after[i].momentum.view(), NewMomentum(hyper, before[i]).view(), which);
    ExpectSameBits<G>(after[i].gradient.view(), before[i].gradient.view(), which);
    after[i].weight.ExpectGapsUntouched();
    after[i].momentum.ExpectGapsUntouched();
    for (const HeadBlock& block : before[i].blocks.blocks()) {
      const DoubleMatrix u = UpdateInput(hyper, before[i], block);
      const double error = UpdateError(hyper, u, after[i], block);
      const double bound = kTensorCoreEpsilon * ErrorFactor(*hyper.coefficients, SingularValues(u));
      EXPECT_LE(kMargin * error, bound) << which << ", " << u.rows << " x " << u.cols;
      worst = std::max(worst, error);
    }
  }
  return worst;
}

// u is the gradient: no momentum.
template <typename G>
std::vector<TestWeight<G>> Spectra(std::int64_t d, std::int64_t n, bool tall) {
  std::vector<TestWeight<G>> weights;
  for (const MakeSpectrum make : kSevenSpectra) {
    const DoubleMatrix m = make(d, n, /*seed=*/weights.size());
    TestWeight<G>& w = weights.emplace_back(HeadBlocks::Whole(tall ? n : d), tall ? d : n, 1);
    SetZero(w.momentum);
    for (std::int64_t i = 0; i < d; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        (tall ? w.gradient.at(j, i) : w.gradient.at(i, j)) =
            Narrow<G>(static_cast<float>(m.at(i, j)));
      }
    }
    if (d == 1) break;  // the others have singular values one from another
  }
  return weights;
}

template <typename G>
class TensorCoreMuonStep : public testing::Test {};

using GradientTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(TensorCoreMuonStep, GradientTypes);

// No more than the contract's fp32 may be off by on these (newton_schulz/accuracy_test.cc).
constexpr double kQuinticGate = 3e-3, kPolarGate = 1e-3;

class TensorCoreSpectra : public testing::TestWithParam<std::int64_t> {};

TEST_P(TensorCoreSpectra, StayWithinTheBound) {
  const std::int64_t d = GetParam();
  const MuonHyperparameters quintic = OnlyTheUpdate(Quintic5(), 0);
  EXPECT_LE(ExpectWithinBound(quintic, Spectra<float>(d, d, /*tall=*/false), "square"),
            kQuinticGate);
  if (d != 64 && d != 128) {
    EXPECT_LE(ExpectWithinBound(quintic, Spectra<BFloat16>(d, d + 37, /*tall=*/d % 2 == 1), "bf16"),
              kQuinticGate);
  }
  if (d == 8 || d == 64 || d == 65) {
    EXPECT_LE(ExpectWithinBound(OnlyTheUpdate(PolarExpress8(), 0),
                                Spectra<float>(d, 300, /*tall=*/d == 65), "polar_express8"),
              kPolarGate);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, TensorCoreSpectra, testing::Values(1, 8, 63, 64, 65, 127, 128),
                         [](const auto& info) { return absl::StrCat(info.param); });

// Where the Gram matrix is well conditioned, the error is that of a few roundings.
TEST(TensorCoreMuonStep, OfWideGaussianBlocksIsAFewRoundingsOff) {
  for (const std::int64_t d : {32, 64, 128}) {
    std::vector<TestWeight<float>> weights = Spectra<float>(d, 2 * d, /*tall=*/false);
    weights.erase(weights.begin() + 1, weights.end());
    EXPECT_LE(ExpectWithinBound(OnlyTheUpdate(Quintic5(), 0), weights, "gaussian"), 5e-6);
  }
}

TYPED_TEST(TensorCoreMuonStep, OfEveryKindOfBlockIsWithinTheBound) {
  for (const bool nesterov : {true, false}) {
    MuonHyperparameters hyper = OnlyTheUpdate(Quintic5());
    hyper.nesterov = nesterov;
    ExpectWithinBound(hyper, WeightsOfManyKinds<TypeParam>(), absl::StrCat("nesterov ", nesterov));
  }
}

// Decay, scale and learning rate are those of the contract: the steps differ by the bound alone.
TYPED_TEST(TensorCoreMuonStep, WritesAsTheContractDoes) {
  const MuonHyperparameters hyper = {.learning_rate = 0.3,
                                     .weight_decay = 0.3,
                                     .gradient_scale = 0.7,
                                     .scale = UpdateScale::kMatchRmsAdamW};
  std::vector<TestWeight<TypeParam>> actual = {TestWeight<TypeParam>(QkvBlocks(), 300, 1)};
  std::vector<TestWeight<TypeParam>> expected = actual;
  ASSERT_TRUE(StepEmulated(hyper, actual, kTensorCores).ok());
  ASSERT_TRUE(MuonStepReference<TypeParam>(hyper, ViewsOf(expected)).ok());
  ExpectSameBits<float>(actual[0].momentum.view(), expected[0].momentum.view(), "momentum");
  const double scale = UpdateScaleFactor(hyper.scale, 16, 300) * hyper.learning_rate;
  for (std::int64_t r = 0; r < actual[0].weight.rows(); ++r) {
    for (std::int64_t c = 0; c < 300; ++c) {
      ASSERT_NEAR(actual[0].weight.at(r, c), expected[0].weight.at(r, c), 1e-5 * scale);
    }
  }
}

// Magnitudes that grow from column to column, so that every stage of a chunk has another power of two
// than the one before it; and that fall.
TYPED_TEST(TensorCoreMuonStep, MagnitudesMayChangeWithinABlock) {
  for (const double rate : {0.05, -0.05, 0.25, -0.25}) {
    std::vector<TestWeight<TypeParam>> weights = {
        TestWeight<TypeParam>(HeadBlocks::Whole(20), 300, 1),
        TestWeight<TypeParam>(HeadBlocks::Whole(300), 20, 2)};
    for (TestWeight<TypeParam>& w : weights) {
      SetZero(w.momentum);
      for (std::int64_t i = 0; i < w.gradient.rows(); ++i) {
        for (std::int64_t j = 0; j < w.gradient.width(); ++j) {
          const double exponent = std::floor(rate * static_cast<double>(std::max(i, j)));
          w.gradient.at(i, j) =
              Narrow<TypeParam>(std::ldexp(Widen(w.gradient.at(i, j)), static_cast<int>(exponent)));
        }
      }
    }
    ExpectWithinBound(OnlyTheUpdate(Quintic5(), 0), weights, absl::StrCat("rate ", rate));
  }
}

// Subnormals, and what is far from 1, as in the contract; zeros give zeros.
TYPED_TEST(TensorCoreMuonStep, MagnitudesOutOfRange) {
  for (const NewtonSchulzCoefficients* set : {&Quintic5(), &PolarExpress8()}) {
    TestWeight<TypeParam> w = WeightOfManyMagnitudes<TypeParam>(300);
    SetZero(w.momentum);
    SetZero(w.weight);
    const std::vector<TestWeight<TypeParam>> before = {w};
    std::vector<TestWeight<TypeParam>> after = before;
    const MuonHyperparameters hyper = OnlyTheUpdate(*set, 0);
    ASSERT_TRUE(StepEmulated(hyper, after, kTensorCores).ok());
    for (int head = 0; head < w.blocks.size(); ++head) {
      const HeadBlock& block = w.blocks.blocks()[head];
      const bool flushed = std::is_same_v<TypeParam, BFloat16> && head == 1;  // by the gradient
      if (head == w.blocks.size() - 1 || flushed) {
        for (std::int64_t c = 0; c < 300; ++c) {
          ASSERT_EQ(after[0].weight.at(block.ranges[0].begin, c), 0.0f);
        }
        continue;
      }
      const DoubleMatrix u = UpdateInput(hyper, w, block);
      EXPECT_LE(kMargin * UpdateError(hyper, u, after[0], block),
                kTensorCoreEpsilon * ErrorFactor(*set, SingularValues(u)))
          << set->name << ", head " << head;
    }
  }
}

TEST(TensorCoreMuonStep, PowersOfTwoShowInNoBit) {
  std::vector<TestWeight<float>> weights(4, TestWeight<float>(HeadBlocks::Whole(24), 300, 7));
  const int exponents[] = {0, -80, 5, 80};
  for (int i = 0; i < 4; ++i) {
    for (std::int64_t r = 0; r < 24; ++r) {
      for (std::int64_t c = 0; c < 300; ++c) {
        weights[i].gradient.at(r, c) = std::ldexp(weights[i].gradient.at(r, c), exponents[i]);
        weights[i].momentum.at(r, c) = std::ldexp(weights[i].momentum.at(r, c), exponents[i]);
      }
    }
  }
  ASSERT_TRUE(StepEmulated({.coefficients = &PolarExpress8()}, weights, kTensorCores).ok());
  for (int i = 1; i < 4; ++i) {
    ExpectSameBits<float>(weights[i].weight.view(), weights[0].weight.view(),
                          absl::StrCat("2^", exponents[i]));
  }
}

TYPED_TEST(TensorCoreMuonStep, BitsDependOnNoOrderOfThreads) {
  const NewtonSchulzCoefficients restarting = {
      .name = "restarting",
      .steps = {{3.5f, -4.75f, 2.0f}, {3.25f, -4.5f, 2.0f}, {2.0f, -1.5f, 0.5f}},
      .restarts_after = {2}};
  const MuonHyperparameters hyper = {.weight_decay = 0.1, .coefficients = &restarting};
  const std::vector<TestWeight<TypeParam>> before = WeightsOfManyKinds<TypeParam>();
  std::vector<TestWeight<TypeParam>> forward = before;
  ASSERT_TRUE(StepEmulated(hyper, forward, kTensorCores).ok());
  for (const emulation::Options& options :
       {emulation::Options{.order = emulation::ThreadOrder::kReverse},
        emulation::Options{.order = emulation::ThreadOrder::kRandom, .seed = 5, .preempt = 0.01},
        emulation::Options{.os_threads = 2}}) {
    std::vector<TestWeight<TypeParam>> other = before;
    ASSERT_TRUE(
        StepEmulated(hyper, other, {.emulation = options, .mode = MuonMode::kTensorCore}).ok());
    for (std::size_t i = 0; i < before.size(); ++i) {
      ExpectSameBits<float>(other[i].weight.view(), forward[i].weight.view(),
                            absl::StrCat("weight ", i));
      ExpectSameBits<float>(other[i].momentum.view(), forward[i].momentum.view(),
                            absl::StrCat("momentum ", i));
    }
  }
}

TYPED_TEST(TensorCoreMuonStep, LargerBlocksHaveTheBitsOfTheContract) {
  const std::vector<TestWeight<TypeParam>> weights = {
      TestWeight<TypeParam>(HeadBlocks::Whole(130), 140, 1)};
  ExpectEmulatedParity({.weight_decay = 0.1}, weights, "130 rows", kTensorCores);
}

TYPED_TEST(TensorCoreMuonStep, ASkippedStepWritesNothing) {
  const std::vector<TestWeight<TypeParam>> before = WeightsOfManyKinds<TypeParam>();
  std::vector<TestWeight<TypeParam>> after = before;
  ASSERT_TRUE(StepEmulated({}, after, {.mode = MuonMode::kTensorCore, .skip = 1}).ok());
  for (std::size_t i = 0; i < before.size(); ++i) {
    ExpectSameBits<float>(after[i].weight.view(), before[i].weight.view(), "weight");
    ExpectSameBits<float>(after[i].momentum.view(), before[i].momentum.view(), "momentum");
  }
}

// What the headers of the kernels say; as many launches as the contract's.
TEST(TensorCoreLaunches, SharedMemory) {
  const auto shared = [](std::int64_t d) {
    std::vector<TestWeight<float>> weights = {TestWeight<float>(HeadBlocks::Whole(d), d, 1)};
    const std::vector<MuonWeight<float>> views = ViewsOf(weights);
    EmulatedStep step(*MuonStepPlan::Create<float>({}, views, MuonMode::kTensorCore), {},
                      /*skip=*/0);
    emulation::Session session;
    EXPECT_TRUE(cuda_emulated::MuonStep(step.plan(), step.launch()).ok());
    std::vector<std::int64_t> bytes;
    for (const emulation::Launch& launch : session.launches()) {
      bytes.push_back(launch.static_shared_bytes + launch.dynamic_shared_bytes);
    }
    return bytes;
  };
  EXPECT_THAT(shared(64), testing::ElementsAre(18448, 37136, 36864));
  EXPECT_THAT(shared(65), testing::ElementsAre(36880, 139792, 104448));
}

}  // namespace
}  // namespace headwise
