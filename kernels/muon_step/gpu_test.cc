// On a GPU the Muon step returns the reference's bits: every kind of block, everywhere the chain can
// run, with restarts and magnitudes out of range; in a graph, with other scalars at each replay; and
// at the sizes of the benchmark. On tensor cores it is within its error bound, with the same bits each
// time.
//
// gpu_harness_test runs a part of this on the emulation.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/device.h"
#include "core/cuda/stream.h"
#include "core/dtype/dtype.h"
#include "core/heads/head_blocks.h"
#include "gtest/gtest.h"
#include "kernels/common/thread_pool.h"
#include "kernels/muon_step/cuda.h"
#include "kernels/muon_step/double_step.h"
#include "kernels/muon_step/gpu_step.h"
#include "kernels/muon_step/muon_step.h"
#include "kernels/muon_step/test_weights.h"

namespace headwise {
namespace {

#define HW_ASSERT_OK(expression)                             \
  do {                                                       \
    const absl::Status hw_status = (expression);             \
    ASSERT_TRUE(hw_status.ok()) << #expression << hw_status; \
  } while (false)

template <typename G>
void ExpectSameWeights(const std::vector<TestWeight<G>>& actual,
                       const std::vector<TestWeight<G>>& expected, const std::string& what) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::string which = absl::StrCat(what, ", weight ", i);
    ExpectSameBits<float>(actual[i].momentum.view(), expected[i].momentum.view(),
                          which + ", momentum");
    ExpectSameBits<float>(actual[i].weight.view(), expected[i].weight.view(), which);
    ExpectSameBits<G>(actual[i].gradient.view(), expected[i].gradient.view(), which + ", gradient");
    actual[i].weight.ExpectGapsUntouched();
    actual[i].momentum.ExpectGapsUntouched();
  }
}

// One step on the GPU and by the reference.
template <typename G>
void ExpectGpuParity(const MuonHyperparameters& hyper, const std::vector<TestWeight<G>>& weights,
                     const std::string& what, MuonChainMemory chain = MuonChainMemory::kAuto) {
  const absl::StatusOr<GpuStep<G>> step =
      GpuStep<G>::Create(hyper, weights, MuonMode::kContract, chain);
  ASSERT_TRUE(step.ok()) << what << ": " << step.status();
  HW_ASSERT_OK(cuda::MuonStep(step->plan(), step->launch(nullptr)));
  std::vector<TestWeight<G>> actual = weights, expected = weights;
  HW_ASSERT_OK(step->Download(actual));
  HW_ASSERT_OK(MuonStepReference<G>(hyper, ViewsOf(expected)));
  ExpectSameWeights(actual, expected, what);
}

using GradientTypes = testing::Types<float, BFloat16>;
constexpr MuonChainMemory kChains[] = {MuonChainMemory::kAuto, MuonChainMemory::kTriangles,
                                       MuonChainMemory::kScratch};

template <typename G>
class GpuMuonStep : public testing::Test {};
TYPED_TEST_SUITE(GpuMuonStep, GradientTypes);

TYPED_TEST(GpuMuonStep, WeightsOfManyKinds) {
  for (const MuonChainMemory chain : kChains) {
    for (const bool nesterov : {true, false}) {
      ExpectGpuParity({.nesterov = nesterov, .weight_decay = 0.1}, WeightsOfManyKinds<TypeParam>(),
                      absl::StrCat("chain ", static_cast<int>(chain)), chain);
    }
  }
}

TYPED_TEST(GpuMuonStep, Restarts) {
  for (const MuonChainMemory chain : kChains) {
    ExpectGpuParity({.weight_decay = 0.1, .coefficients = &PolarExpress8()},
                    WeightsOfManyKinds<TypeParam>(),
                    absl::StrCat("chain ", static_cast<int>(chain)), chain);
  }
}

TYPED_TEST(GpuMuonStep, MagnitudesOutOfRange) {
  for (const MuonChainMemory chain : kChains) {
    ExpectGpuParity<TypeParam>({.weight_decay = 0.1}, {WeightOfManyMagnitudes<TypeParam>(516)},
                               absl::StrCat("chain ", static_cast<int>(chain)), chain);
  }
}

// On tensor cores: within the bound of cuda.h, momentum bit for bit, and the same bits twice.
template <typename G>
void ExpectWithinBound(const MuonHyperparameters& hyper, std::vector<TestWeight<G>> before,
                       const std::string& what) {
  for (TestWeight<G>& w : before) SetZero(w.weight);
  std::vector<TestWeight<G>> after[2] = {before, before};
  for (std::vector<TestWeight<G>>& result : after) {
    const absl::StatusOr<GpuStep<G>> step =
        GpuStep<G>::Create(hyper, before, MuonMode::kTensorCore);
    ASSERT_TRUE(step.ok()) << what << ": " << step.status();
    HW_ASSERT_OK(cuda::MuonStep(step->plan(), step->launch(nullptr)));
    HW_ASSERT_OK(step->Download(result));
  }
  ExpectSameWeights(after[1], after[0], absl::StrCat(what, ", twice"));
  std::vector<TestWeight<G>> reference = before;
  HW_ASSERT_OK(MuonStepReference<G>(hyper, ViewsOf(reference)));
  for (std::size_t i = 0; i < before.size(); ++i) {
    ExpectSameBits<float>(after[0][i].momentum.view(), reference[i].momentum.view(),
                          absl::StrCat(what, ", momentum ", i));
    for (const HeadBlock& block : before[i].blocks.blocks()) {
      const DoubleMatrix u = UpdateInput(hyper, before[i], block);
      EXPECT_LE(UpdateError(hyper, u, after[0][i], block),
                kTensorCoreEpsilon * ErrorFactor(*hyper.coefficients, SingularValues(u)))
          << what << ", weight " << i << ", " << u.rows << " x " << u.cols;
    }
  }
}

TYPED_TEST(GpuMuonStep, TensorCoresAreWithinTheBound) {
  for (const NewtonSchulzCoefficients* set : {&Quintic5(), &PolarExpress8()}) {
    ExpectWithinBound(OnlyTheUpdate(*set), WeightsOfManyKinds<TypeParam>(), set->name);
  }
  for (const std::int64_t d : {1, 8, 63, 64, 65, 127, 128}) {
    ExpectWithinBound<TypeParam>(OnlyTheUpdate(Quintic5()),
                                 {TestWeight<TypeParam>(HeadBlocks::Whole(d), 270, d)},
                                 absl::StrCat(d, " rows"));
  }
}

TYPED_TEST(GpuMuonStep, EveryNumberOfRows) {
  for (std::int64_t d = 1; d <= 200; d += d < 20 ? 1 : 7) {
    ExpectGpuParity<TypeParam>({}, {TestWeight<TypeParam>(HeadBlocks::Whole(d), 270, d)},
                               absl::StrCat(d, " rows"));
  }
}

// Captured once, replayed with other inputs and scalars in the same memory; a replay that skips.
TYPED_TEST(GpuMuonStep, AGraphReplaysWithOtherInputs) {
  using G = TypeParam;
  const MuonHyperparameters hyper = {.learning_rate = 9, .weight_decay = 0.1};
  const std::vector<TestWeight<G>> before = WeightsOfManyKinds<G>();
  const absl::StatusOr<GpuStep<G>> step = GpuStep<G>::Create(hyper, before);
  ASSERT_TRUE(step.ok()) << step.status();
  const absl::StatusOr<CudaStream> stream = CudaStream::Create();
  ASSERT_TRUE(stream.ok()) << stream.status();
  const absl::StatusOr<CudaGraph> graph = CudaGraph::Capture(
      *stream, [&](CUstream_st* s) { return cuda::MuonStep(step->plan(), step->launch(s)); });
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_LE(graph->kernels(), step->plan().launches());
  std::vector<TestWeight<G>> actual = before, expected = before;
  HW_ASSERT_OK(step->Download(actual));
  ExpectSameWeights(actual, before, "the capture ran");
  for (int i = 0; i < 3; ++i) {
    for (std::size_t w = 0; w < expected.size(); ++w) {
      Fill(expected[w].gradient, 100 * i + w, 0.02);
    }
    MuonHyperparameters now = hyper;
    now.learning_rate = 0.02 / (i + 1);
    now.gradient_scale = 1.0 / (i + 1);
    HW_ASSERT_OK(step->Upload(expected));
    const bool skip = i == 1;
    HW_ASSERT_OK(step->SetScalars({.learning_rate = now.learning_rate,
                                   .gradient_scale = now.gradient_scale,
                                   .skip = skip ? 1u : 0u}));
    HW_ASSERT_OK(graph->Launch(*stream));
    HW_ASSERT_OK(stream->Synchronize());
    HW_ASSERT_OK(step->Download(actual));
    if (!skip) HW_ASSERT_OK(MuonStepReference<G>(now, ViewsOf(expected)));
    ExpectSameWeights(actual, expected, absl::StrCat("replay ", i));
  }
}

// Blocks on every multiprocessor, many times over. The CPU path's bits are the reference's.
template <typename G>
class GpuLargeMuonStep : public testing::Test {};
TYPED_TEST_SUITE(GpuLargeMuonStep, GradientTypes);

TYPED_TEST(GpuLargeMuonStep, SizesOfTheBenchmark) {
  using G = TypeParam;
  for (const auto& [count, d, n] : {std::tuple(160, 64, 8192), std::tuple(48, 128, 4096)}) {
    const HeadBlocks heads = *HeadBlocks::Separate(HeadRole::kQuery, count, d, 1);
    std::vector<TestWeight<G>> expected = {TestWeight<G>(heads, n, 1)};
    const MuonHyperparameters hyper = {.weight_decay = 0.1};
    absl::StatusOr<GpuStep<G>> step = GpuStep<G>::Create(hyper, expected);
    if (absl::IsResourceExhausted(step.status())) GTEST_SKIP() << step.status();
    ASSERT_TRUE(step.ok()) << step.status();
    HW_ASSERT_OK(cuda::MuonStep(step->plan(), step->launch(nullptr)));
    std::vector<TestWeight<G>> actual = expected;
    HW_ASSERT_OK(step->Download(actual));
    ThreadPool pool(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
    HW_ASSERT_OK(MuonStep<G>(hyper, ViewsOf(expected), pool));
    ExpectSameWeights(actual, expected, absl::StrCat(count, " x ", d, " x ", n));
  }
}

// Beside the CPU's fp32: both are a few roundings off.
TYPED_TEST(GpuLargeMuonStep, TensorCoresAtSizesOfTheBenchmark) {
  using G = TypeParam;
  for (const auto& [count, d, n] : {std::tuple(160, 64, 8192), std::tuple(48, 128, 4096)}) {
    const HeadBlocks heads = *HeadBlocks::Separate(HeadRole::kQuery, count, d, 1);
    std::vector<TestWeight<G>> expected = {TestWeight<G>(heads, n, 1)};
    SetZero(expected[0].weight);
    const MuonHyperparameters hyper = OnlyTheUpdate(Quintic5());
    absl::StatusOr<GpuStep<G>> step = GpuStep<G>::Create(hyper, expected, MuonMode::kTensorCore);
    if (absl::IsResourceExhausted(step.status())) GTEST_SKIP() << step.status();
    ASSERT_TRUE(step.ok()) << step.status();
    HW_ASSERT_OK(cuda::MuonStep(step->plan(), step->launch(nullptr)));
    std::vector<TestWeight<G>> actual = expected;
    HW_ASSERT_OK(step->Download(actual));
    ThreadPool pool(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
    HW_ASSERT_OK(MuonStep<G>(hyper, ViewsOf(expected), pool));
    ExpectSameBits<float>(actual[0].momentum.view(), expected[0].momentum.view(), "momentum");
    double difference = 0, norm = 0;
    for (std::int64_t r = 0; r < expected[0].weight.rows(); ++r) {
      for (std::int64_t c = 0; c < n; ++c) {
        const double o = expected[0].weight.at(r, c);
        difference += std::pow(double{actual[0].weight.at(r, c)} - o, 2);
        norm += o * o;
      }
    }
    EXPECT_LE(std::sqrt(difference / norm), 1e-5) << count << " x " << d << " x " << n;
  }
}

// --- What compute-sanitizer runs: little, for it is slow -----------------------------------------

template <typename G>
class GpuMuonForSanitizers : public testing::Test {};
TYPED_TEST_SUITE(GpuMuonForSanitizers, GradientTypes);

TYPED_TEST(GpuMuonForSanitizers, EveryKernel) {
  using Weight = TestWeight<TypeParam>;
  const std::vector<Weight> weights = {
      Weight(*HeadBlocks::Separate(HeadRole::kQuery, 2, 20, 1), 270, 1, Layout::kStrided),
      Weight(HeadBlocks::Whole(80), 72, 2), Weight(ColumnBlocks(), 70, 3)};
  const NewtonSchulzCoefficients restarting = {
      .name = "restarting",
      .steps = {{3.5f, -4.75f, 2.0f}, {3.25f, -4.5f, 2.0f}, {2.0f, -1.5f, 0.5f}},
      .restarts_after = {2}};
  for (const MuonChainMemory chain : kChains) {
    ExpectGpuParity({.weight_decay = 0.1, .coefficients = &restarting}, weights,
                    absl::StrCat("chain ", static_cast<int>(chain)), chain);
  }
}

TYPED_TEST(GpuMuonForSanitizers, EveryKernelOfTensorCores) {
  using Weight = TestWeight<TypeParam>;
  ExpectWithinBound<TypeParam>(
      OnlyTheUpdate(PolarExpress8()),
      {Weight(*HeadBlocks::Separate(HeadRole::kQuery, 2, 20, 1), 270, 1, Layout::kStrided),
       Weight(HeadBlocks::Whole(80), 72, 2), Weight(ColumnBlocks(), 70, 3)},
      "polar_express8");
}

}  // namespace
}  // namespace headwise
