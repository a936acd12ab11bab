#include "core/parallel/index_rule.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/parallel/layout_error.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::headwise::testing::Leaf;
using ::headwise::testing::Outcome;

const Dim kT = {Factor::Batch("B", 2), {"L", 64}};
const Dim kK = {{"K", 32}};
const Dim kN = {{"N", 8}};

// y = x W^T on tp=2.
std::string Product(const char* x, const char* w, const char* mesh = "tp=2") {
  return Outcome(
      DeriveIndexed({.op = "product", .letters = "tk,nk->tn", .kind = OpKind::kMultilinear},
                    {{"x", Leaf(mesh, {kT, kK}, x)}, {"w", Leaf(mesh, {kN, kK}, w)}}));
}

std::string Add(const char* a, const char* b, const char* mesh = "tp=2") {
  return Outcome(DeriveElementwise(
      "add", OpKind::kLinear, {{"a", Leaf(mesh, {kT, kK}, a)}, {"b", Leaf(mesh, {kT, kK}, b)}}));
}

TEST(IndexRule, ContractsShards) {
  EXPECT_EQ(Product("", ""), "F32[B=2 L=64, N=8]");
  EXPECT_EQ(Product("", "S(0)@tp"), "F32[B=2 L=64, N=8] tp:S(N)");
  EXPECT_EQ(Product("S(0)@tp", ""), "F32[B=2 L=64, N=8] tp:S(B)");
  EXPECT_EQ(Product("S(1)@tp", "S(1)@tp"), "F32[B=2 L=64, N=8] tp:P");
  EXPECT_EQ(Product("P@tp", ""), "F32[B=2 L=64, N=8] tp:P");
  EXPECT_EQ(Product("I@tp", "I@tp"), "F32[B=2 L=64, N=8] tp:I");
  EXPECT_EQ(Product("V@tp", ""), "F32[B=2 L=64, N=8] tp:V");
  EXPECT_EQ(Product("S(0)@dp, S(1)@tp", "S(1)@tp", "dp=2,tp=2"), "F32[B=2 L=64, N=8] dp:S(B) tp:P");
}

TEST(IndexRule, RefusesOneSidedContraction) {
  EXPECT_EQ(Product("", "S(1)@tp"),
            "product: axis tp: x F32[B=2 L=64, K=32] with w F32[N=8, K=32] tp:S(K): x has all of "
            "dimension k [K=32] where w has a share: both must be sharded alike, or neither");
  EXPECT_TRUE(absl::StrContains(Product("S(1)@tp", ""), "w has all of dimension k [K=32]"));
}

TEST(IndexRule, RefusesTwoLettersOnOneAxis) {
  EXPECT_EQ(
      Product("S(0)@tp", "S(0)@tp"),
      "product: axis tp: x F32[B=2 L=64, K=32] tp:S(B) with w F32[N=8, K=32] tp:S(N): "
      "sharded along dimension t [B=2 L=64] and along dimension n [N=8]: a rank would see only the "
      "pairs of its own two shares");
}

TEST(IndexRule, RefusesWhatTheJoinTableRefuses) {
  EXPECT_TRUE(absl::StrContains(Product("I@tp", "S(0)@tp"), "x F32[B=2 L=64, K=32] tp:I with w"));
  EXPECT_TRUE(absl::StrContains(Product("I@tp", ""), "counts once"));
  EXPECT_TRUE(absl::StrContains(Product("P@tp", "S(0)@tp"), "neither adding up"));
  EXPECT_TRUE(absl::StrContains(Product("P@tp", "P@tp"), "not the sum of the ranks'"));
  EXPECT_TRUE(absl::StrContains(Product("V@tp", "S(0)@tp"), "cannot be matched"));
}

TEST(IndexRule, ElementwiseOperandsAreShardedAlike) {
  EXPECT_EQ(Add("S(1)@tp", "S(1)@tp"), "F32[B=2 L=64, K=32] tp:S(K)");
  EXPECT_EQ(Add("P@tp", "P@tp"), "F32[B=2 L=64, K=32] tp:P");
  EXPECT_TRUE(absl::StrContains(Add("S(1)@tp", ""), "b has all of dimension b [K=32] where a has"));
  EXPECT_TRUE(
      absl::StrContains(Add("S(0)@tp", "S(1)@tp"),
                        "sharded along dimension a [B=2 L=64] and along dimension b [K=32]"));
  EXPECT_TRUE(absl::StrContains(Add("P@tp", ""), "counted once per rank"));
}

TEST(IndexRule, ALiteralCountsNextToAPartialOnly) {
  const auto plus_one = [](const char* spec) {
    return Outcome(DeriveIndexed({.op = "plus one", .letters = "k->k", .scalar = true},
                                 {{"x", Leaf("tp=2", {kK}, spec)}}));
  };
  EXPECT_EQ(plus_one("I@tp"), "F32[K=32] tp:I");
  EXPECT_EQ(plus_one("S(0)@tp"), "F32[K=32] tp:S(K)");
  EXPECT_TRUE(absl::StrContains(plus_one("P@tp"), "counted once per rank"));
}

TEST(IndexRule, ADimensionThatAnOperandLacksMayBeSharded) {
  const LayoutType x = Leaf("tp=2", {kT, kK}, "S(0)@tp");
  const auto scale = [&](const std::vector<Dim>& shape, const char* spec) {
    return Outcome(
        DeriveIndexed({.op = "scale", .letters = "tk,t->tk", .kind = OpKind::kMultilinear},
                      {{"x", x}, {"s", Leaf("tp=2", shape, spec)}}));
  };
  EXPECT_EQ(scale({{{"one", 1}}}, ""), "F32[B=2 L=64, K=32] tp:S(B)");
  EXPECT_TRUE(absl::StrContains(scale({kT}, ""), "s has all of dimension t"));
}

TEST(IndexRule, WholeDimensionsAreNotSharded) {
  const auto norm = [](const char* spec) {
    return Outcome(DeriveIndexed(
        {.op = "rms_norm", .letters = "tk->tk", .kind = OpKind::kNonlinear, .whole = "k"},
        {{"x", Leaf("tp=2", {kT, kK}, spec)}}));
  };
  EXPECT_EQ(norm("S(0)@tp"), "F32[B=2 L=64, K=32] tp:S(B)");
  EXPECT_EQ(norm("S(1)@tp"),
            "rms_norm: axis tp: x F32[B=2 L=64, K=32] tp:S(K): the operation looks at all of "
            "dimension k [K=32] at once, and a rank has a share of it");
  EXPECT_TRUE(absl::StrContains(norm("P@tp"), "x F32[B=2 L=64, K=32] tp:P: the operation is not"));
}

TEST(IndexRule, SumsOverSharesArePartial) {
  const auto sum = [](const char* spec) {
    return Outcome(DeriveIndexed({.op = "sum", .letters = "tk->k"},
                                 {{"x", Leaf("dp=2,tp=2", {kT, kK}, spec)}}));
  };
  EXPECT_EQ(sum("S(0)@dp, S(0)@tp"), "F32[K=32] dp:P tp:P");
  EXPECT_EQ(sum("S(0)@dp, S(1)@tp"), "F32[K=32] dp:P tp:S(K)");
}

TEST(IndexRule, AxesMustComeInTheSameOrder) {
  EXPECT_TRUE(absl::StrContains(Add("S(1)@dp, S(1)@tp", "S(1)@tp, S(1)@dp", "dp=2,tp=2"),
                                "axes in another order"));
  EXPECT_TRUE(absl::StrContains(
      Outcome(DeriveElementwise("add", OpKind::kLinear,
                                {{"a", Leaf("dp=2", {{{"T", 6}}}, "S(0: 4 2)@dp")},
                                 {"b", Leaf("dp=2", {{{"T", 6}}}, "S(0)@dp")}})),
      "other sizes"));
}

TEST(IndexRule, TokensMustLieInTheSameOrder) {
  const Dim reordered = {{.name = "L", .size = 64, .order = "zigzag"}};
  EXPECT_EQ(Outcome(DeriveElementwise("add", OpKind::kLinear,
                                      {{"a", Leaf("cp=2", {{{"L", 64}}}, "S(0)@cp")},
                                       {"b", Leaf("cp=2", {reordered}, "S(0)@cp")}})),
            "add: a F32[L=64] cp:S(L) with b F32[L=64 (zigzag)] cp:S(L): dimension a [L=64] and "
            "dimension a [L=64 (zigzag)] must be the same, in the same order");
}

TEST(IndexRule, ViewsOfTheMeshDoNotMix) {
  EXPECT_TRUE(absl::StrContains(
      Outcome(DeriveElementwise("add", OpKind::kLinear,
                                {{"a", Leaf("tp=2,ep=2", {kK}, "S(0)@tp")},
                                 {"b", Leaf("tp=2,ep=2", {kK}, "expert: S(0)@ep")}})),
      "reinterpret_mesh"));
}

TEST(IndexRule, ErrorsCarryWhatTheyAreMadeOf) {
  const auto result = DeriveElementwise(
      "add", OpKind::kLinear, {{"a", Leaf("tp=2", {kK}, "P@tp")}, {"b", Leaf("tp=2", {kK}, "")}});
  EXPECT_EQ(OpOfError(result.status()), "add");
  EXPECT_EQ(AxisOfError(result.status()), "tp");
  EXPECT_EQ(OperandsOfError(result.status()),
            (std::vector<std::string>{"a F32[K=32] tp:P", "b F32[K=32]"}));
  EXPECT_TRUE(absl::StrContains(WhyOfError(result.status()), "counted once per rank"));
}

TEST(IndexRule, UnknownOperandsGiveUnknownResults) {
  const LayoutType unknown;
  const auto result =
      DeriveElementwise("add", OpKind::kLinear, {{"a", unknown}, {"b", Leaf("tp=2", {kK}, "")}});
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->defined());
}

TEST(IndexRuleDeathTest, ANonlinearOperationDoesNotSum) {
  const LayoutType x = Leaf("tp=2", {kT, kK}, "");
  EXPECT_DEATH((void)DeriveIndexed({.op = "bad", .letters = "tk->t", .kind = OpKind::kNonlinear},
                                   {{"x", x}}),
               "sums in a nonlinear operation");
}

}  // namespace
}  // namespace headwise
