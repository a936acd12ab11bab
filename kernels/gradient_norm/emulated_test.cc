// The CUDA kernels, emulated, have the bits of gradient_norm.h: norm, guard, clip factor and the
// words of the updates, on odd sizes, strides and values, in three thread orders, with every buffer
// a region whose gaps are out of bounds.
#include "kernels/common/testing/emulated.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/tensor/row_span.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"
#include "kernels/emulation/emulation.h"
#include "kernels/gradient_norm/cuda.h"
#include "kernels/gradient_norm/gradient_norm.h"

namespace headwise {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Gradients = std::vector<TestMatrix<float>>;

// A gradient whose elements' magnitudes are so far apart that the order of additions shows.
TestMatrix<float> Gradient(std::int64_t rows, std::int64_t width, Layout layout) {
  TestMatrix<float> m(rows, width, layout);
  Fill(m, 31 * rows + width);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < width; ++c) {
      m.at(r, c) = std::ldexp(m.at(r, c), static_cast<int>((r * 5 + c * 3) % 23) - 12);
    }
  }
  return m;
}

// Around groups of rows, tiles of columns and the blocks of the trees; some without elements.
Gradients GradientsOfManyShapes() {
  Gradients gradients;
  for (const auto& [rows, width, layout] : {std::tuple(0, 4, Layout::kContiguous),
                                            {1, 515, Layout::kStrided},
                                            {31, 1, Layout::kStrided},
                                            {32, 32, Layout::kAligned},
                                            {33, 33, Layout::kStrided},
                                            {5, 0, Layout::kContiguous},
                                            {129, 65, Layout::kContiguous},
                                            {2500, 3, Layout::kStrided},
                                            {0, 0, Layout::kContiguous}}) {
    gradients.push_back(Gradient(rows, width, layout));
  }
  return gradients;
}

// What the updates read besides the decision.
struct Words {
  float adamw_scale = kNan;
  std::uint32_t adamw_skip = 7;
  double muon_scale = kNan;
  std::uint32_t muon_skip = 7;
};

struct Result {
  GradientDecision decision = {.norm = kNan, .clip_factor = kNan, .skip = 7, .first_unusable = 7};
  Words words;
};

Result Decide(const Gradients& gradients, double clip_norm, const emulation::Options& order = {}) {
  std::vector<RowSpan<const float>> spans;
  for (const TestMatrix<float>& g : gradients) spans.push_back(g.view());
  const absl::StatusOr<GradientNormPlan> plan = GradientNormPlan::Create(spans);
  EXPECT_EQ(plan.status(), absl::OkStatus());
  std::vector<double> scratch(plan->scratch_bytes() / sizeof(double), kNan);
  Result result;
  Words& words = result.words;
  emulation::Session session(order);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    AddMatrix(session, absl::StrCat("gradient", i), spans[i]);
  }
  AddArray(session, "table", plan->table());
  AddArray(session, "scratch", absl::MakeSpan(scratch));
  session.AddRegion("decision", &result.decision, sizeof(result.decision),
                    emulation::Access::kReadWrite);
  session.AddRegion("words", &words, sizeof(words), emulation::Access::kReadWrite);
  EXPECT_EQ(
      cuda_emulated::DecideStep(*plan, {.table = plan->table().data(),
                                        .scratch = reinterpret_cast<std::byte*>(scratch.data()),
                                        .clip_norm = clip_norm,
                                        .decision = &result.decision,
                                        .adamw_scale = &words.adamw_scale,
                                        .adamw_skip = &words.adamw_skip,
                                        .muon_scale = &words.muon_scale,
                                        .muon_skip = &words.muon_skip}),
      absl::OkStatus());
  EXPECT_EQ(session.launches().size(), plan->launches());
  return result;
}

// The CPU's, of gradients whose names are in the order given.
GradientSummary OnCpu(const Gradients& gradients) {
  std::vector<NamedGradient> named;
  for (const TestMatrix<float>& g : gradients) {
    named.push_back({absl::StrCat(1000 + named.size()), g.view()});
  }
  ThreadPool pool(1);
  return SummarizeGradients(named, pool);
}

void ExpectCpuBits(const Gradients& gradients, double clip_norm, const emulation::Options& order) {
  const GradientSummary expected = OnCpu(gradients);
  const Result actual = Decide(gradients, clip_norm, order);
  EXPECT_TRUE(SameBits(actual.decision.norm, expected.norm))
      << actual.decision.norm << ", expected " << expected.norm;
  const bool skip = !expected.non_finite.empty();
  const double factor = skip ? 1.0 : ClipFactor(expected.norm, clip_norm);
  EXPECT_EQ(actual.decision.first_unusable, skip ? std::stoul(expected.non_finite) - 1000 : kNone);
  EXPECT_EQ(actual.decision.skip, skip);
  EXPECT_EQ(actual.decision.clip_factor, factor);
  EXPECT_EQ(actual.words.adamw_scale, static_cast<float>(factor));
  EXPECT_EQ(actual.words.muon_scale, factor);
  EXPECT_EQ(actual.words.adamw_skip, skip);
  EXPECT_EQ(actual.words.muon_skip, skip);
}

TEST(EmulatedGradientNorm, HasTheCpusBits) {
  const Gradients gradients = GradientsOfManyShapes();
  for (const emulation::Options& order : kThreadOrders) {
    for (const double clip_norm : {0.0, 0.37, 1e9}) ExpectCpuBits(gradients, clip_norm, order);
  }
}

TEST(EmulatedGradientNorm, ForSanitizersHasTheCpusBits) {
  const Gradients gradients = {Gradient(33, 40, Layout::kStrided), Gradient(1, 7, Layout::kStrided),
                               Gradient(70, 3, Layout::kContiguous)};
  ExpectCpuBits(gradients, 0.1, kThreadOrders[2]);
}

// One square of 1 and others of 0.845 half ulps: what is lost depends on whom the 1 is added to.
TEST(EmulatedGradientNorm, TheTreeOverParametersIsInTheOrderGiven) {
  for (const int count : {1, 2, 3, 5, 130, 700}) {
    for (const int large : {0, count / 2, count - 1}) {
      Gradients gradients;
      for (int i = 0; i < count; ++i) {
        gradients.emplace_back(1, 1).at(0, 0) = i == large ? 1.0f : 1.3f * 0x1p-27f;
      }
      ExpectCpuBits(gradients, 0.5, {});
    }
  }
}

TEST(EmulatedGradientNorm, NothingHasNormZero) {
  ExpectCpuBits({}, 1.0, {});
  ExpectCpuBits({Gradient(0, 3, Layout::kContiguous)}, 1.0, {});
  TestMatrix<float> zeros(3, 2);
  for (int i = 0; i < 6; ++i) zeros.at(i / 2, i % 2) = i % 2 == 0 ? 0.0f : -0.0f;
  ExpectCpuBits({zeros}, 1.0, {});
}

TEST(EmulatedGradientNorm, TheGuardSeesEveryElementAndEveryUnusableValue) {
  const Gradients gradients = {Gradient(2, 3, Layout::kContiguous),
                               Gradient(35, 34, Layout::kStrided)};
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity, 0x1p96f, -0x1p96f}) {
    for (const int at : {0, 31, 32, 33, 34 * 34 + 32, 35 * 34 - 1}) {
      Gradients with = gradients;
      with[1].at(at / 34, at % 34) = bad;
      EXPECT_EQ(Decide(with, 1.0).decision.first_unusable, 1) << bad << " at " << at;
      ExpectCpuBits(with, 1.0, {});
    }
  }
}

TEST(EmulatedGradientNorm, TheGuardLetsTheLargestUsableValuePass) {
  Gradients gradients = {Gradient(4, 5, Layout::kStrided)};
  gradients[0].at(2, 2) = std::nextafter(0x1p96f, 0.0f);
  ExpectCpuBits(gradients, 1.0, {});
  EXPECT_EQ(Decide(gradients, 1.0).decision.skip, 0);
}

TEST(EmulatedGradientNorm, TheFirstUnusableIsTheFirstInTheOrderGiven) {
  Gradients gradients;
  for (int i = 0; i < 600; ++i) gradients.push_back(Gradient(1, 2, Layout::kContiguous));
  for (const int first : {599, 544, 520, 31, 0}) {
    gradients[first].at(0, 1) = kNan;
    EXPECT_EQ(Decide(gradients, 0.0, kThreadOrders[1]).decision.first_unusable, first);
  }
}

TEST(EmulatedGradientNorm, WordsThatNobodyAskedForAreLeftAlone) {
  const Gradients gradients = {Gradient(3, 5, Layout::kContiguous)};
  const RowSpan<const float> span = gradients[0].view();
  const absl::StatusOr<GradientNormPlan> plan = GradientNormPlan::Create({&span, 1});
  ASSERT_EQ(plan.status(), absl::OkStatus());
  std::vector<double> scratch(plan->scratch_bytes() / sizeof(double));
  GradientDecision decision;
  ASSERT_EQ(
      cuda_emulated::DecideStep(*plan, {.table = plan->table().data(),
                                        .scratch = reinterpret_cast<std::byte*>(scratch.data()),
                                        .decision = &decision}),
      absl::OkStatus());
  EXPECT_EQ(decision.norm, OnCpu(gradients).norm);
}

TEST(EmulatedGradientNormTraffic, ReadsEachElementOnce) {
  constexpr std::int64_t kRows = 64, kWidth = 256;
  SectorRows<float> gradient(kRows, kWidth);
  const RowSpan<const float> span = gradient.span();
  const absl::StatusOr<GradientNormPlan> plan = GradientNormPlan::Create({&span, 1});
  ASSERT_EQ(plan.status(), absl::OkStatus());
  std::vector<double> scratch(plan->scratch_bytes() / sizeof(double));
  GradientDecision decision;
  emulation::Session session({.count_traffic = true});
  AddMatrix(session, "gradient", span);
  AddArray(session, "table", plan->table());
  AddArray(session, "scratch", absl::MakeSpan(scratch));
  session.AddRegion("decision", &decision, sizeof(decision), emulation::Access::kReadWrite);
  ASSERT_EQ(
      cuda_emulated::DecideStep(*plan, {.table = plan->table().data(),
                                        .scratch = reinterpret_cast<std::byte*>(scratch.data()),
                                        .decision = &decision}),
      absl::OkStatus());
  EXPECT_EQ(session.traffic("gradient").loads, kRows * kWidth * 4);
  EXPECT_EQ(session.traffic("gradient").partly_used_sectors, 0);
  EXPECT_EQ(session.launches().size(), 3);
}

TEST(GradientNormPlan, RefusesWhatHasNoMemory) {
  const RowSpan<const float> spans[] = {RowSpan<const float>(nullptr, 0, 4),
                                        RowSpan<const float>(nullptr, 2, 4)};
  const absl::Status status = GradientNormPlan::Create(spans).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "gradient 1 of the norm is [2, 4] at a null pointer");
}

}  // namespace
}  // namespace headwise
