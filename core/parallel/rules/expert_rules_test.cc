#include "core/parallel/rules/expert_rules.h"

#include <string>

#include "absl/strings/match.h"
#include "core/parallel/rules/layer_rules.h"
#include "core/parallel/step.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"

namespace headwise::rules {
namespace {

using ::absl::StrContains;
using ::headwise::testing::Leaf;
using ::headwise::testing::Outcome;

const Dim kT = {Factor::Batch("B", 2), {"L", 64}};
const Dim kN = {{"N", 32}};
const Dim kF = {{"F", 16}};
const Dim kE = {{"E", 8}};
constexpr std::int64_t kChosen = 2;

void ExpectDual(const absl::StatusOr<LayoutType>& gradient, const LayoutType& value) {
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  EXPECT_TRUE(CheckDual(*gradient, value).ok()) << CheckDual(*gradient, value);
}

// Tokens shared by all ranks of {dp, tp}, experts over ep.
TEST(ExpertRules, ExpertParallel) {
  for (const char* mesh_text : {"dp=2,tp=2,ep=2", "dp=2,tp=2,ep=4", "dp=4,ep=2", "dp=4"}) {
    const Mesh mesh = *Mesh::Parse(mesh_text);
    const Dim tokens = {Factor::Batch("B", 4), {"L", 64}};
    const char* spec = "S(0)@dp, S(0)@tp";
    const LayoutType x = Leaf(mesh, {tokens, kN}, spec);
    const LayoutType router = Leaf(mesh, {kE, kN}, "");
    const LayoutType w1 = Leaf(mesh, {kE, kF, kN}, "expert: S(0)@ep");
    const LayoutType b1 = Leaf(mesh, {kE, kF}, "expert: S(0)@ep");
    const LayoutType w2 = Leaf(mesh, {kE, kN, kF}, "expert: S(0)@ep");

    const LayoutType logits = *Linear(x, router, nullptr);
    const RoutingTypes routing = *Route(logits, nullptr, kChosen);
    const auto rows = ToExperts(*DispatchTokens(routing, x));
    ASSERT_TRUE(rows.ok()) << rows.status();
    const auto hidden = ExpertLinear(*rows, w1, &b1);
    ASSERT_TRUE(hidden.ok()) << hidden.status();
    const LayoutType outputs = *ToTokens(*ExpertLinear(*hidden, w2, nullptr));
    const auto y = CombineExperts(routing, outputs);
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_TRUE(*y == x) << y->ToString();

    const ExpertGradients d = *CombineExpertsBackward(routing, outputs, *y, DType::kF32);
    const LayoutType doutputs = *ToExperts(d.outputs);
    ExpectDual(ExpertLinearBackwardWeight(doutputs, *hidden, DType::kF32), w2);
    const LayoutType dhidden = *ExpertLinearBackwardInput(doutputs, w2);
    ExpectDual(dhidden, *hidden);
    ExpectDual(ExpertLinearBackwardWeight(dhidden, *rows, DType::kF32), w1);
    ExpectDual(ExpertLinearBackwardBias(dhidden, DType::kF32), b1);
    const auto dx =
        DispatchTokensBackward(routing, *ToTokens(*ExpertLinearBackwardInput(dhidden, w1)));
    ExpectDual(dx, x);
    const auto dlogits = RouteBackward(logits, routing, d.weights);
    ExpectDual(dlogits, logits);
    ExpectDual(LinearBackwardWeight(*dlogits, x, DType::kF32), router);
  }
}

TEST(ExpertRules, GradientsOfExpertsArePartialOverEdpOnly) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2,ep=2");
  const char* spec = "S(0)@dp, S(0)@tp";
  const RoutingTypes routing = *Route(Leaf(mesh, {kT, kE}, spec), nullptr, kChosen);
  const LayoutType rows = *ToExperts(*DispatchTokens(routing, Leaf(mesh, {kT, kN}, spec)));
  const LayoutType dy = *ToExperts(*DispatchTokens(routing, Leaf(mesh, {kT, kF}, spec)));
  EXPECT_EQ(Outcome(ExpertLinearBackwardWeight(dy, rows, DType::kF32)),
            "F32[E=8, F=16, N=32] edp:P ep:S(E)");
}

// Experts cut along their width: x replicated, sums left open until one reduction.
TEST(ExpertRules, WidthParallel) {
  const char* mesh = "tp=2";
  const LayoutType x = Leaf(mesh, {kT, kN}, ""), router = Leaf(mesh, {kE, kN}, "");
  const LayoutType w1 = Leaf(mesh, {kE, kF, kN}, "S(1)@tp");
  const LayoutType w2 = Leaf(mesh, {kE, kN, kF}, "S(2)@tp"), b2 = Leaf(mesh, {kE, kN}, "");
  const LayoutType logits = *Linear(x, router, nullptr);
  const RoutingTypes routing = *Route(logits, nullptr, kChosen);
  const LayoutType rows = *DispatchTokens(routing, x);
  const LayoutType hidden = *ExpertLinear(rows, w1, nullptr);
  // A bias joins the open sum once: on one rank.
  EXPECT_TRUE(StrContains(Outcome(ExpertLinear(hidden, w2, &b2)), "once per rank"));
  const LayoutType once = *Apply(*Step::Parse("convert@tp -> P"), b2);
  const LayoutType outputs = *ExpertLinear(hidden, w2, &once);
  const LayoutType y = *CombineExperts(routing, outputs);
  EXPECT_EQ(y.ToString(), "F32[B=2 L=64, N=32] tp:P");

  const ExpertGradients d =
      *CombineExpertsBackward(routing, outputs, Leaf(mesh, {kT, kN}, ""), DType::kF32);
  EXPECT_EQ(d.outputs.ToString(), "F32[E=8 R=32, N=32]");
  EXPECT_EQ(d.weights.ToString(), "F32[B=2 L=64, k=2] tp:P");
  const LayoutType dhidden = *ExpertLinearBackwardInput(d.outputs, w2);
  ExpectDual(dhidden, hidden);
  ExpectDual(ExpertLinearBackwardBias(d.outputs, DType::kF32), once);
  ExpectDual(DispatchTokensBackward(routing, *ExpertLinearBackwardInput(dhidden, w1)), x);
  const LayoutType dlogits = *RouteBackward(logits, routing, d.weights);
  EXPECT_EQ(dlogits.ToString(), "F32[B=2 L=64, E=8] tp:P");
  ExpectDual(LinearBackwardWeight(dlogits, x, DType::kF32), router);
}

TEST(ExpertRules, Refusals) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2,ep=4");
  const LayoutType x = Leaf(mesh, {kT, kN}, "S(0)@dp");
  const LayoutType logits = Leaf(mesh, {kT, kE}, "S(0)@dp");
  const RoutingTypes routing = *Route(logits, nullptr, kChosen);
  // dp and tp make one group of experts, and tp holds the same tokens twice.
  EXPECT_TRUE(StrContains(Outcome(ToExperts(*DispatchTokens(routing, x))), "types differ"));
  // ep does not divide the experts.
  EXPECT_TRUE(StrContains(Outcome(LayoutType::Declare(mesh, {{{"E", 6}}, kF}, DType::kF32,
                                                      *LayoutSpec::Parse("expert: S(0)@ep"))),
                          "4 does not divide E=6"));
  // A router that every rank repeats, for tokens that are cut.
  EXPECT_TRUE(StrContains(Outcome(Linear(Leaf(mesh, {kT, kN}, "S(0)@dp, S(0)@tp"),
                                         Leaf(mesh, {kE, kN}, "I@tp"), nullptr)),
                          "counts once"));
  // Experts' rows that were not exchanged back.
  const LayoutType all = Leaf(mesh, {kT, kN}, "S(0)@dp, S(0)@tp");
  const RoutingTypes of_all = *Route(Leaf(mesh, {kT, kE}, "S(0)@dp, S(0)@tp"), nullptr, kChosen);
  EXPECT_TRUE(StrContains(Outcome(CombineExperts(of_all, *ToExperts(*DispatchTokens(of_all, all)))),
                          "exchange them back"));
  // Weights of experts that are elsewhere.
  EXPECT_TRUE(StrContains(Outcome(ExpertLinear(*DispatchTokens(routing, x),
                                               Leaf(mesh, {kE, kF, kN}, "S(0)@tp"), nullptr)),
                          "x has all of dimension e"));
}

TEST(ExpertRules, CountsAreReducedBeforeTheyAreUsed) {
  const LayoutType logits = Leaf("dp=2", {kT, kE}, "S(0)@dp");
  const RoutingTypes routing = *Route(logits, nullptr, kChosen);
  const LayoutType counts = *CountLoads(logits, routing, DType::kF32);
  EXPECT_EQ(counts.ToString(), "F32[E=8] dp:P");
  EXPECT_TRUE(StrContains(Outcome(BalancingLoss(logits, counts)), "not the sum of the ranks'"));
  EXPECT_TRUE(StrContains(Outcome(Route(logits, &counts, kChosen).status()), "neither adding up"));
  const LayoutType reduced = *Apply(*Step::Parse("all_reduce@dp -> R"), counts);
  EXPECT_EQ(Outcome(BalancingLoss(logits, reduced)), "F32[] dp:P");
  EXPECT_TRUE(Route(logits, &reduced, kChosen).ok());
  EXPECT_EQ(Outcome(AddBalancingGradient(logits, reduced, logits)), logits.ToString());
  EXPECT_TRUE(
      StrContains(Outcome(AddBalancingGradient(logits, counts, logits)), "neither adding up"));
}

}  // namespace
}  // namespace headwise::rules
