#include "optim/zero_plan.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/parallel/gradient_plan.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::headwise::testing::Leaf;

const Dim kPacked = {{"G", 4},
                     Factor::Sum("slots", {{"q", {{"M", 2}}}, {"k", {}}, {"v", {}}}),
                     Factor::Whole("D", 8)};
const Dim kWidth = {{"N", 24}};

// One parameter's plan.
ZeroParameter Plan(const char* mesh, const std::vector<Dim>& shape, const char* spec,
                   const char* axis = "dp") {
  const absl::StatusOr<ZeroPlan> plan = PlanZero({{"p", Leaf(mesh, shape, spec)}}, axis);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan->parameters.at(0);
}

TEST(ZeroPlan, AReductionEndsInReduceScatterWhereTheAxisDivides) {
  const ZeroParameter p = Plan("dp=4,tp=2", {kWidth, {{"F", 12}}}, "S(1)@tp");
  EXPECT_TRUE(p.cut);
  EXPECT_EQ(p.reduction.ToString(), "reduction p: reduce_scatter@dp -> S(0)");
  EXPECT_EQ(p.state.ToString(), "F32[N=24, F=12] dp:S(N) tp:S(F)");
  EXPECT_EQ(p.replicated_elements, 24 * 6);
  EXPECT_EQ(p.elements, 6 * 6);
  EXPECT_EQ(p.reduction_bytes, 4 * 24 * 6 * 3 / 4);
  EXPECT_EQ(p.gather_bytes, 4 * 6 * 6 * 3);
}

TEST(ZeroPlan, KvGroupsAreCutAndHeadsNever) {
  // Two kv groups are left on each rank of tp = 2; none can be cut further.
  EXPECT_EQ(Plan("dp=2,tp=2", {kPacked, kWidth}, "S(0)@tp").reduction.ToString(),
            "reduction p: reduce_scatter@dp -> S(0)");
  for (const char* mesh : {"dp=2,tp=4", "dp=4,tp=2", "dp=3,tp=2"}) {
    const ZeroParameter p = Plan(mesh, {kPacked, kWidth}, "S(0)@tp");
    EXPECT_FALSE(p.cut) << mesh;
    EXPECT_EQ(p.reduction.ToString(), "reduction p: all_reduce@dp -> R") << mesh;
    EXPECT_EQ(p.elements, p.replicated_elements);
    EXPECT_EQ(p.gather_bytes, 0);
    EXPECT_FALSE(p.reason.empty());
  }
  const ZeroParameter gate =
      Plan("dp=2,tp=4", {{{"G", 4}, {"M", 2}, Factor::Whole("D", 8)}, kWidth}, "S(0)@tp");
  EXPECT_EQ(gate.state.ToString(), "F32[G=4 M=2 D=8, N=24] dp:S(M) tp:S(G)");
}

TEST(ZeroPlan, OtherAxesAreReducedFirstAndAsBefore) {
  EXPECT_EQ(Plan("dp=2,cp=3,tp=2", {kWidth}, "").reduction.ToString(),
            "reduction p: all_reduce@cp -> R; all_reduce@tp -> R; reduce_scatter@dp -> S(0)");
  EXPECT_EQ(Plan("dp=2,cp=3,tp=2", {kWidth}, "I@tp").reduction.ToString(),
            "reduction p: all_reduce@cp -> R; reduce_scatter@dp -> S(0)");
}

TEST(ZeroPlan, ExpertsAreCutInTheirOwnView) {
  const std::vector<Dim> experts = {{{"E", 8}}, {{"F", 6}}, kWidth};
  const ZeroParameter dp = Plan("dp=8,ep=2", experts, "expert: S(0)@ep");
  EXPECT_FALSE(dp.cut);
  EXPECT_EQ(dp.reduction.ToString(), "reduction p: all_reduce@edp -> R");
  const ZeroParameter edp = Plan("dp=8,ep=2", experts, "expert: S(0)@ep", "edp");
  EXPECT_EQ(edp.state.ToString(), "F32[E=8, F=6, N=24] edp:S(E) ep:S(E)");
}

TEST(ZeroPlan, NothingHappensOnAnAxisOfOneRank) {
  const ZeroParameter p = Plan("tp=2", {kWidth, kWidth}, "S(0)@tp");
  EXPECT_FALSE(p.cut);
  EXPECT_TRUE(p.reduction.steps.empty());
  EXPECT_EQ(p.reduction_bytes, 0);
}

TEST(ZeroPlan, ErrorsNameTheAxisOrTheParameter) {
  EXPECT_EQ(PlanZero({{"p", Leaf("dp=2", {kWidth}, "")}}, "pp").status().code(),
            absl::StatusCode::kNotFound);
  const absl::Status status = PlanZero({{"p", Leaf("dp=2", {kWidth}, "P@dp")}}, "dp").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "parameter p")) << status;
}

// The edits are what the gradient plan of the same layouts accepts.
TEST(ZeroPlan, ItsEditsAreAcceptedByTheGradientPlan) {
  const ZeroParameter p = Plan("dp=2,tp=2", {kPacked, kWidth}, "S(0)@tp");
  const LayoutType gradient = Leaf("dp=2,tp=2", {kPacked, kWidth}, "S(0)@tp, P@dp");
  GradientPlan plan;
  ASSERT_TRUE(plan.Add("p", gradient, p.reduction.steps).ok());
  EXPECT_EQ(plan.gradients()[0].reduced, p.state);
  EXPECT_EQ(plan.gradients()[0].bytes_sent, p.reduction_bytes);
  EXPECT_EQ(PlanEntry::Parse(p.reduction.ToString())->steps, p.reduction.steps);
}

}  // namespace
}  // namespace headwise
