// What plans and launches refuse, in which words, with nothing launched and nothing written.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/dtype/dtype.h"
#include "core/heads/head_blocks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/muon_step/emulated_step.h"

namespace headwise {
namespace {

using testing::HasSubstr;

absl::Status PlanError(const MuonHyperparameters& hyper, const MuonWeight<float>& weight) {
  return MuonStepPlan::Create<float>(hyper, {weight}).status();
}

TEST(EmulatedErrors, APlanRefusesWhatMuonStepRefuses) {
  TestWeight<float> w(HeadBlocks::Whole(8), 12, 1);
  const HeadBlocks other = HeadBlocks::Whole(9);
  MuonWeight<float> weight = w.view();
  weight.blocks = &other;
  const absl::Status status = PlanError({}, weight);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Muon weight 0: its head blocks tile 9"));
  EXPECT_THAT(std::string(PlanError({.momentum = 1.0}, w.view()).message()),
              HasSubstr("momentum is 1"));
  EXPECT_THAT(std::string(PlanError({.weight_decay = -1}, w.view()).message()),
              HasSubstr("weight_decay is -1"));
  EXPECT_EQ(MuonStepPlan::Create<float>({}, {w.view(), w.view()}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(EmulatedErrors, APlanRefusesMatricesOf2To30Rows) {
  constexpr std::int64_t kRows = std::int64_t{1} << 30;
  float element[3] = {};  // only addresses are looked at
  const HeadBlocks blocks = HeadBlocks::Whole(kRows);
  const MuonWeight<float> weight = {.weight = RowSpan<float>(element, kRows, 1, 3),
                                    .momentum = RowSpan<float>(element + 1, kRows, 1, 3),
                                    .gradient = RowSpan<const float>(element + 2, kRows, 1, 3),
                                    .blocks = &blocks};
  const absl::Status status = PlanError({}, weight);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected less than 2^30 rows"));
}

TEST(EmulatedErrors, NoWeightsAreNoLaunches) {
  const absl::StatusOr<MuonStepPlan> plan = MuonStepPlan::Create<BFloat16>({}, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->launches(), 0);
  EXPECT_EQ(plan->scratch_bytes(), 0);
  emulation::Session session;
  EXPECT_TRUE(cuda_emulated::MuonStep(*plan, {}).ok());
  EXPECT_TRUE(session.launches().empty());
}

TEST(EmulatedErrors, ALaunchNamesWhatIsMissingOrMisaligned) {
  std::vector<TestWeight<float>> weights = {TestWeight<float>(HeadBlocks::Whole(8), 12, 1)};
  const std::vector<TestWeight<float>> before = weights;
  EmulatedStep step(*MuonStepPlan::Create<float>({}, ViewsOf(weights)), {}, /*skip=*/0);
  const auto expect_error = [&](const std::function<void(MuonStepLaunch&)>& spoil,
                                const std::string& words) {
    MuonStepLaunch launch = step.launch();
    spoil(launch);
    emulation::Session session;
    const absl::Status status = cuda_emulated::MuonStep(step.plan(), launch);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << words;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    EXPECT_TRUE(session.launches().empty()) << words;
  };
  expect_error([](MuonStepLaunch& l) { l.table = nullptr; }, "launch.table is a null pointer");
  expect_error([](MuonStepLaunch& l) { l.scratch = nullptr; }, "launch.scratch is a null pointer");
  expect_error([](MuonStepLaunch& l) { l.scalars = nullptr; }, "launch.scalars is a null pointer");
  expect_error([](MuonStepLaunch& l) { l.table += 8; }, "launch.table is not at a multiple of 16");
  expect_error([](MuonStepLaunch& l) { l.scratch += 4; },
               "launch.scratch is not at a multiple of 16");
  ExpectSameBits<float>(weights[0].weight.view(), before[0].weight.view(), "weight");
  ExpectSameBits<float>(weights[0].momentum.view(), before[0].momentum.view(), "momentum");
}

}  // namespace
}  // namespace headwise
