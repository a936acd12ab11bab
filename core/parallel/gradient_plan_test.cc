#include "core/parallel/gradient_plan.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::absl::StrContains;
using ::headwise::testing::Leaf;
using ::headwise::testing::Outcome;

constexpr char kMesh[] = "dp=2,tp=2";

LayoutType Gradient(const char* spec, const char* mesh = kMesh) {
  return Leaf(mesh, {{{"N", 32}}, {{"K", 8}}}, spec);
}

std::vector<Step> Steps(const std::vector<const char*>& texts) {
  std::vector<Step> steps;
  for (const char* text : texts) steps.push_back(*Step::Parse(text));
  return steps;
}

std::string Reduced(const char* spec, const std::vector<const char*>& steps) {
  return Outcome(CheckReduction("w", Gradient(spec), Steps(steps)));
}

TEST(GradientPlan, ReducesWhereTheGradientIsPartial) {
  EXPECT_EQ(*DeriveReduction(Gradient("P@dp, P@tp")),
            Steps({"all_reduce@dp -> R", "all_reduce@tp -> R"}));
  EXPECT_EQ(*DeriveReduction(Gradient("P@dp, S(0)@tp")), Steps({"all_reduce@dp -> R"}));
  EXPECT_EQ(*DeriveReduction(Gradient("P@dp, I@tp")), Steps({"all_reduce@dp -> R"}));
  EXPECT_TRUE(DeriveReduction(Gradient("S(0)@dp, I@tp"))->empty());
  EXPECT_TRUE(StrContains(DeriveReduction(Gradient("V@dp")).status().message(), "terms of a sum"));
}

TEST(GradientPlan, EveryAxisExactlyOnce) {
  EXPECT_EQ(Reduced("P@dp, P@tp", {"all_reduce@dp -> R", "all_reduce@tp -> R"}), "F32[N=32, K=8]");
  EXPECT_EQ(Reduced("P@dp, P@tp", {"all_reduce@tp -> R", "reduce_scatter@dp -> S(0)"}),
            "F32[N=32, K=8] dp:S(N)");
  EXPECT_EQ(
      Reduced("P@dp, P@tp", {"all_reduce@dp -> R"}),
      "gradient plan of w: axis tp: gradient F32[N=32, K=8] dp:P tp:P: after the reduction "
      "(all_reduce@dp -> R) it is P still, and the optimizer would step by one rank's part: reduce "
      "it over this axis");
  EXPECT_TRUE(StrContains(Reduced("P@dp", {}), "after the reduction (none) it is P still"));
  EXPECT_TRUE(StrContains(Reduced("P@dp", {"all_reduce@dp -> R", "all_reduce@dp -> R"}),
                          "multiplies it by the number of ranks"));
  EXPECT_TRUE(
      StrContains(Reduced("I@tp", {"all_reduce@tp -> R"}), "multiplies it by the number of ranks"));
  EXPECT_TRUE(StrContains(Reduced("S(0)@tp", {"all_reduce@tp -> R"}), "put side by side"));
}

TEST(GradientPlan, ExpertsAreReducedOverEdpOnly) {
  const LayoutType dw = Leaf("dp=2,tp=2,ep=2", {{{"E", 4}}, {{"F", 8}}}, "expert: P@edp, S(0)@ep");
  EXPECT_EQ(*DeriveReduction(dw), Steps({"all_reduce@edp -> R"}));
  EXPECT_TRUE(StrContains(Outcome(CheckReduction("w1", dw, Steps({"all_reduce@ep -> R"}))),
                          "put side by side"));
  EXPECT_TRUE(StrContains(Outcome(CheckReduction("w1", dw, Steps({"all_reduce@dp -> R"}))),
                          "no axis 'dp' in the expert view"));
}

TEST(GradientPlan, TheNormCountsEveryElementOnce) {
  EXPECT_EQ(Outcome(SquaredNorm(Gradient("S(0)@dp, I@tp"))), "F64[] dp:P tp:I");
  EXPECT_EQ(Outcome(SquaredNorm(Gradient("V@dp"))), "F64[] dp:P");
  EXPECT_TRUE(StrContains(Outcome(SquaredNorm(Gradient("P@dp"))), "not linear"));
}

TEST(GradientPlan, ListsAParameterOnce) {
  GradientPlan plan;
  const LayoutType g = Gradient("P@dp, S(0)@tp");
  EXPECT_TRUE(plan.Add("w", g, *DeriveReduction(g)).ok());
  EXPECT_TRUE(StrContains(plan.Add("w", g, *DeriveReduction(g)).message(), "comes twice"));
  const LayoutType norm = Gradient("P@dp, P@tp");
  EXPECT_TRUE(plan.Add("norm", norm, *DeriveReduction(norm)).ok());
  EXPECT_EQ(plan.NormGroups(), "none: 1 parameters; tp: 1 parameters");
  // 16 x 8 and 32 x 8 floats, all_reduced over 2 ranks.
  EXPECT_EQ(plan.ToString(),
            "w: F32[N=32, K=8] dp:P tp:S(N): all_reduce@dp -> R, 512 bytes\n"
            "norm: F32[N=32, K=8] dp:P tp:P: all_reduce@dp -> R; all_reduce@tp -> R, 2048 bytes\n");
}

}  // namespace
}  // namespace headwise
