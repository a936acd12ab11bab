// What operations must not do with shards, where no plan of a decoder can say it: each is refused
// with words that explain it, is accepted once it is mended, and gives other numbers in fact.
// rejected_layouts_test.cc has what plans can say.
//
//   part            an operation must not
//   embedding       look rows up without a mask
//   split           take a range of kv groups that are shared out
//   head norms      have a gradient reduced that is I
//   RoPE            take a table that is cut
//   attention,      meet tokens of another order
//   residual
//   SwiGLU          split shares of [w1; w3]; take the silu of a P
//   router          offset scores by counts that are P
//   head            take a softmax over shards; give each rank a loss
//   loss            take a mean over shards
//   random numbers  be the same for different shards, or differ for the same data
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/parallel/factored_dim.h"
#include "core/parallel/gradient_plan.h"
#include "core/parallel/index_rule.h"
#include "core/parallel/layout_checker.h"
#include "core/parallel/layout_plan.h"
#include "core/parallel/op_rules.h"
#include "core/parallel/rules/expert_rules.h"
#include "core/parallel/rules/layer_rules.h"
#include "core/parallel/rules/loss_rules.h"
#include "core/parallel/step.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"
#include "model/random.h"

namespace headwise {
namespace {

using ::absl::StrContains;
using ::headwise::testing::Leaf;
using ::headwise::testing::Outcome;

const Dim kT = {{"T", 8}}, kN = {{"N", 4}}, kF = {{"F", 8}}, kV = {{"V", 8}}, kE = {{"E", 4}};

double At(std::uint64_t stream, std::int64_t index) {
  return Normal(stream, static_cast<std::uint64_t>(index));
}

double Silu(double x) { return x / (1 + std::exp(-x)); }

// A model that is run on types by a plan: it must be refused with `words`, and have a fix.
template <typename Model>
void ExpectRefusedAndMended(const char* mesh, const char* plan, const Model& model,
                            const char* words, const char* fix) {
  LayoutChecker failed(*Mesh::Parse(mesh), *LayoutPlan::Parse(plan));
  model(failed);
  EXPECT_TRUE(StrContains(failed.status().message(), words)) << failed.status();
  std::string found;
  for (const VerifiedFix& one : FindFixes(failed, model, 100)) found += one.ToString() + "\n";
  EXPECT_TRUE(StrContains(found, fix)) << found;
}

// --- embedding ---

TEST(RefusedOperation, ALookupWithoutAMask) {
  const LayoutType tokens = Leaf("tp=2", {kT}, "", DType::kI32);
  const LayoutType table = Leaf("tp=2", {kV, kN}, "S(0)@tp");
  EXPECT_TRUE(StrContains(Outcome(rules::Embedding(tokens, table, DType::kF32, /*masked=*/false)),
                          "without a mask it would read some other row"));
  EXPECT_EQ(Outcome(rules::Embedding(tokens, table, DType::kF32)), "F32[T=8, N=4] tp:P");
  // Row 5 of 8 on two ranks: without a mask rank 0 adds one of its own.
  const auto lookup = [](bool masked) {
    double sum = 0;
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      const bool mine = 5 / 4 == rank;
      if (mine || !masked) sum += At(1, rank * 4 + 5 % 4);
    }
    return sum;
  };
  EXPECT_EQ(lookup(true), At(1, 5));
  EXPECT_NE(lookup(false), At(1, 5));
}

// --- split ---

TEST(RefusedOperation, ASplitAlongKvGroups) {
  const Dim groups = {{"G", 2}};
  const LayoutType packed = Leaf("tp=2", {kT, groups, kN}, "S(1)@tp");
  EXPECT_TRUE(StrContains(Outcome(TakeRange("split", {"packed", packed}, 1, {"first", 1})),
                          "which rank holds the range depends on its numbers"));
  EXPECT_EQ(Outcome(TakeRange("split", {"packed", packed}, 2, {"first", 2})),
            "F32[T=8, G=2, first=2] tp:S(G)");
  // The first of a rank's groups is not the first group.
  const std::vector<double> groups_of_all = {At(1, 0), At(1, 1), At(1, 2), At(1, 3)};
  for (const std::ptrdiff_t rank : {0, 1}) {
    const std::vector<double> share(groups_of_all.begin() + 2 * rank,
                                    groups_of_all.begin() + 2 * rank + 2);
    EXPECT_EQ(share[0] == groups_of_all[0], rank == 0);
  }
}

// --- head norms ---

TEST(RefusedOperation, AReductionOfAGradientThatIsInvariant) {
  const LayoutType gradient = Leaf("tp=2", {kN}, "I@tp");
  EXPECT_TRUE(DeriveReduction(gradient)->empty());
  const std::vector<Step> reduce = {*Step::Parse("all_reduce@tp -> R")};
  EXPECT_TRUE(StrContains(Outcome(CheckReduction("q_norm", gradient, reduce)),
                          "multiplies it by the number of ranks"));
  EXPECT_TRUE(CheckReduction("q_norm", gradient, {}).ok());
}

// --- RoPE ---

TEST(RefusedOperation, ARotaryTableThatIsCut) {
  const Dim angles = {{"D", 4}}, heads = {{"H", 2}};
  const LayoutType x = Leaf("tp=2", {kT, heads, angles}, "S(1)@tp");
  const auto rotate = [&](const char* table) {
    return Outcome(DeriveIndexed(
        {.op = "rope", .letters = "thd,td->thd", .kind = OpKind::kMultilinear, .whole = "d"},
        {{"x", x}, {"table", Leaf("tp=2", {kT, angles}, table)}}));
  };
  EXPECT_TRUE(StrContains(rotate("S(1)@tp"), "its own two shares"));
  EXPECT_EQ(rotate(""), "F32[T=8, H=2, D=4] tp:S(H)");
}

// --- orders of tokens ---

TEST(RefusedOperation, TokensOfTwoOrders) {
  const LayoutType x = Leaf("cp=2", {kT, kN}, "");
  const LayoutType other = *ReorderTokens("reorder", {"x", x}, 0, "T", "zigzag");
  EXPECT_TRUE(StrContains(Outcome(rules::Add(x, other)), "must be the same, in the same order"));
  EXPECT_TRUE(StrContains(Outcome(rules::LinearBackwardWeight(x, other, DType::kF32)),
                          "must be the same, in the same order"));
  const LayoutType back = *ReorderTokens("reorder", {"x", other}, 0, "T", "");
  EXPECT_TRUE(rules::Add(x, back).ok());
  // a + b, and a plus b the other way round.
  double difference = 0;
  for (std::int64_t t = 0; t < 8; ++t) {
    difference += std::abs((At(1, t) + At(2, t)) - (At(1, t) + At(2, 7 - t)));
  }
  EXPECT_GT(difference, 1);
}

// --- SwiGLU ---

TEST(RefusedOperation, SharesOfAPackedGateAndUp) {
  const Dim packed = {Factor::Sum("w1w3", {{"w1", kF}, {"w3", kF}})};
  const auto declare = [](const Dim& rows) {
    return Outcome(LayoutType::Declare(*Mesh::Parse("tp=2"), {rows, kN}, DType::kF32,
                                       *LayoutSpec::Parse("S(0)@tp")));
  };
  EXPECT_TRUE(StrContains(declare(packed), "interleave the parts"));
  // Interleaved: a pair of rows for each hidden unit.
  const Dim pairs = {{"F", 8}, Factor::Sum("w1w3", {{"w1", {}}, {"w3", {}}})};
  EXPECT_EQ(declare(pairs), "F32[F=8 w1w3=1+1, N=4] tp:S(F)");
  // 16 rows [w1 | w3] in two shares, each split in the middle: the gates of rank 0 meet w1's rows.
  double difference = 0;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    for (std::int64_t f = 0; f < 4; ++f) {
      const double wrong = Silu(At(1, rank * 8 + f)) * At(1, rank * 8 + 4 + f);
      const double right = Silu(At(1, rank * 4 + f)) * At(1, 8 + rank * 4 + f);
      difference += std::abs(wrong - right);
    }
  }
  EXPECT_GT(difference, 1);
}

// x and the weights cut along the width that is summed over, and no reduction before the silu.
TEST(RefusedOperation, TheSiluOfAPartial) {
  const auto model = [](LayoutChecker& check) {
    const LayoutType x = check.Input("x", {kT, kN}, DType::kF32);
    const LayoutType w1 = check.Parameter("w1", {kF, kN}, DType::kF32);
    const LayoutType gate = check.Cross("gate", check(rules::Linear(x, w1, nullptr)));
    const LayoutType up = check.Input("up", {kT, kF}, DType::kF32);
    const LayoutType y = check(rules::Gate(up, gate));
    const rules::GateGradients d = check(rules::GateBackward(up, gate, y));
    const LayoutType dgate = check.CrossBackward("gate", d.gate);
    check.ParameterGradient("w1", check(rules::LinearBackwardWeight(dgate, x, DType::kF32)));
    check.InputGradient("x", check(rules::LinearBackwardInput(dgate, w1)));
  };
  ExpectRefusedAndMended("tp=2", "leaf x: S(1)@tp\nleaf w1: S(1)@tp\nleaf up: I@tp\n", model,
                         "not linear", "forward gate: all_reduce(F32)@tp -> I");
  const double a = At(1, 0), b = At(1, 1);
  EXPECT_GT(std::abs(Silu(a) + Silu(b) - Silu(a + b)), 1e-3);
}

// --- router ---

TEST(RefusedOperation, OffsetsThatArePartialCounts) {
  const LayoutType logits = Leaf("dp=2", {kT, kE}, "S(0)@dp");
  const rules::RoutingTypes routing = *rules::Route(logits, nullptr, 2);
  const LayoutType counts = *rules::CountLoads(logits, routing, DType::kF32);
  EXPECT_EQ(counts.ToString(), "F32[E=4] dp:P");
  EXPECT_TRUE(StrContains(Outcome(rules::Route(logits, &counts, 2).status()), "neither adding up"));
  const LayoutType all = *Apply(*Step::Parse("all_reduce@dp -> R"), counts);
  EXPECT_TRUE(rules::Route(logits, &all, 2).ok());
  // The experts that 8 tokens choose, and those that the first 4 choose: other ones have most.
  const std::vector<int> choices = {0, 0, 0, 1, 1, 1, 1, 2};
  const auto most = [&](std::size_t tokens) {
    std::vector<int> loads(4);
    for (std::size_t t = 0; t < tokens; ++t) ++loads[static_cast<std::size_t>(choices[t])];
    return std::max_element(loads.begin(), loads.end()) - loads.begin();
  };
  EXPECT_NE(most(4), most(8));
}

// --- head and loss ---

TEST(RefusedOperation, ASoftmaxOverShardsOfTheVocabulary) {
  const auto softmax = [](const char* spec) {
    return Outcome(DeriveIndexed(
        {.op = "softmax", .letters = "tv->tv", .kind = OpKind::kNonlinear, .whole = "v"},
        {{"logits", Leaf("tp=2", {kT, kV}, spec)}}));
  };
  EXPECT_TRUE(StrContains(softmax("S(1)@tp"), "looks at all of dimension v [V=8]"));
  EXPECT_EQ(softmax("S(0)@tp"), "F32[T=8, V=8] tp:S(T)");
  // The shares' softmaxes sum to 1 each.
  double whole = 0, share = 0;
  for (std::int64_t v = 0; v < 8; ++v) whole += std::exp(At(1, v));
  for (std::int64_t v = 0; v < 4; ++v) share += std::exp(At(1, v));
  EXPECT_GT(std::abs(std::exp(At(1, 0)) / share - std::exp(At(1, 0)) / whole), 1e-3);
}

// Logits gathered to R: every rank would differentiate a loss of its own.
TEST(RefusedOperation, ALossOfEachRank) {
  const auto model = [](LayoutChecker& check) {
    const LayoutType h = check.Input("h", {kT, kN}, DType::kF32);
    const LayoutType w = check.Parameter("w", {kV, kN}, DType::kF32);
    const LayoutType targets = check.Input("targets", {kT}, DType::kI32);
    const LayoutType z = check.Cross("logits", check(rules::Linear(h, w, nullptr)));
    const LayoutType used = check.Cross("targets_used", targets);
    const LayoutType losses = check(rules::CrossEntropy(z, used, DType::kF32));
    check.Note(rules::CheckLoss(check(rules::SumLosses(losses))));
    const LayoutType dz = check.CrossBackward(
        "logits", check(rules::CrossEntropyBackward(z, used, nullptr, DType::kF32)));
    check.ParameterGradient("w", check(rules::LinearBackwardWeight(dz, h, DType::kF32)));
  };
  // Targets R go with logits that are R; the loss does not.
  LayoutChecker failed(*Mesh::Parse("tp=2"),
                       *LayoutPlan::Parse("leaf w: S(0)@tp\n"
                                          "forward logits: all_gather(F32)@tp -> R\n"));
  model(failed);
  EXPECT_TRUE(StrContains(failed.status().message(),
                          "gradients come out multiplied by the number of ranks"))
      << failed.status();
  // With targets that are I one change mends it: the gather gives an I.
  ExpectRefusedAndMended("tp=2",
                         "leaf w: S(0)@tp\nleaf targets: I@tp\n"
                         "forward logits: all_gather(F32)@tp -> R\n",
                         model, "counts once", "forward logits: all_gather(F32)@tp -> I");
}

TEST(RefusedOperation, AMeanOverShards) {
  const LayoutType losses = Leaf("dp=2", {kT}, "S(0)@dp");
  EXPECT_TRUE(
      StrContains(Outcome(DeriveIndexed(
                      {.op = "mean", .letters = "t->", .kind = OpKind::kNonlinear, .whole = "t"},
                      {{"losses", losses}})),
                  "looks at all of dimension t [T=8]"));
  const auto loss = rules::Scale(*rules::SumLosses(losses), Leaf("dp=2", {}, ""));
  EXPECT_EQ(Outcome(loss), "F32[] dp:P");
  EXPECT_TRUE(rules::CheckLoss(*loss).ok());
  // Of 3 and 5 losses that count.
  double sums[2] = {0, 0};
  for (std::int64_t t = 0; t < 8; ++t) sums[t < 3 ? 0 : 1] += At(1, t) * At(1, t);
  EXPECT_GT(std::abs((sums[0] / 3 + sums[1] / 5) / 2 - (sums[0] + sums[1]) / 8), 1e-3);
}

// --- random numbers ---

TEST(RefusedOperation, RandomNumbersOfTheWrongRanks) {
  const auto random = [](const char* spec, const std::vector<std::string>& folded) {
    return Outcome(RandomLike("dropout", {"x", Leaf("dp=2,tp=2", {kT, kN}, spec)}, folded));
  };
  EXPECT_TRUE(StrContains(random("S(0)@dp", {}), "fold the axis into the seed"));
  EXPECT_TRUE(StrContains(random("S(0)@dp, I@tp", {"dp", "tp"}), "do not fold the axis"));
  EXPECT_EQ(random("S(0)@dp, I@tp", {"dp"}), "F32[T=8, N=4] dp:S(T) tp:I");
  // Two shards of what one rank would draw: with the place in the seed they differ, without it the
  // second repeats the first, and so do copies that must not differ.
  const auto drawn = [](const std::vector<std::uint64_t>& seeds) {
    std::vector<double> all;
    for (const std::uint64_t seed : seeds) {
      for (std::int64_t i = 0; i < 4; ++i) all.push_back(At(RandomKey(seed, "dropout"), i));
    }
    return std::equal(all.begin(), all.begin() + 4, all.begin() + 4);
  };
  EXPECT_TRUE(drawn({7, 7}));
  EXPECT_FALSE(drawn({7, 8}));
}

}  // namespace
}  // namespace headwise
