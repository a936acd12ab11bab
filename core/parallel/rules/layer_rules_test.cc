#include "core/parallel/rules/layer_rules.h"

#include <string>

#include "absl/strings/match.h"
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
const Dim kV = {{"V", 128}};
constexpr char kMesh[] = "dp=2,tp=2";

LayoutType Stream(const char* spec) { return Leaf(kMesh, {kT, kN}, spec); }
LayoutType Hidden(const char* spec) { return Leaf(kMesh, {kT, kF}, spec); }
LayoutType Width(const char* spec) { return Leaf(kMesh, {kN}, spec); }

TEST(LinearRule, ColumnParallel) {
  const LayoutType x = Stream("S(0)@dp"), w = Leaf(kMesh, {kF, kN}, "S(0)@tp");
  const LayoutType b = Leaf(kMesh, {kF}, "S(0)@tp");
  const LayoutType y = *Linear(x, w, &b);
  EXPECT_EQ(y.ToString(), "F32[B=2 L=64, F=16] dp:S(B) tp:S(F)");
  EXPECT_EQ(Linear(x, w, &b, DType::kF64)->dtype(), DType::kF64);
  EXPECT_TRUE(CheckDual(*LinearBackwardInput(y, w), x).ok());
  EXPECT_TRUE(CheckDual(*LinearBackwardWeight(y, x, DType::kF32), w).ok());
  EXPECT_TRUE(CheckDual(*LinearBackwardBias(y, DType::kF32), b).ok());
  EXPECT_EQ(Outcome(LinearBackwardWeight(y, x, DType::kF32)), "F32[F=16, N=32] dp:P tp:S(F)");
}

// With sequence parallelism, by signature: S(T) -> S(F) and back, S(F) -> S(T) and back.
TEST(LinearRule, GathersAndScattersWhileItMultiplies) {
  const LayoutType x = Stream("S(0)@dp, S(0)@tp"), w1 = Leaf(kMesh, {kF, kN}, "S(0)@tp");
  const LayoutType b = Leaf(kMesh, {kF}, "S(0)@tp");
  const LayoutType hidden = *AllGatherLinear(x, w1, &b, "tp");
  EXPECT_EQ(hidden.ToString(), "F32[B=2 L=64, F=16] dp:S(B) tp:S(F)");
  EXPECT_TRUE(CheckDual(*AllGatherLinearBackwardInput(hidden, w1, "tp", DType::kF32), x).ok());
  const LayoutType w2 = Leaf(kMesh, {kN, kF}, "S(1)@tp");
  const LayoutType y = *LinearReduceScatter(hidden, w2, "tp", DType::kF32);
  EXPECT_EQ(y.ToString(), "F32[B=2 L=64, N=32] dp:S(B) tp:S(L)");

  EXPECT_TRUE(StrContains(Outcome(AllGatherLinear(Stream("S(0)@dp"), w1, &b, "tp")),
                          "all_gather@tp -> R: axis tp: x"))
      << "what every rank has is not gathered";
  EXPECT_FALSE(AllGatherLinear(x, w2, nullptr, "tp").ok()) << "another dimension of the weight";
  EXPECT_TRUE(StrContains(
      Outcome(LinearReduceScatter(x, Leaf(kMesh, {kN, kN}, ""), "tp", DType::kF32)), "tp"))
      << "a product that is no sum";
}

TEST(LinearRule, RowParallel) {
  const LayoutType x = Hidden("S(0)@dp, S(1)@tp"), w = Leaf(kMesh, {kN, kF}, "S(1)@tp");
  EXPECT_EQ(Outcome(Linear(x, w, nullptr)), "F32[B=2 L=64, N=32] dp:S(B) tp:P");
  const LayoutType dy = Stream("S(0)@dp");  // the dual of P is R
  EXPECT_TRUE(CheckDual(*LinearBackwardInput(dy, w), x).ok());
  EXPECT_TRUE(CheckDual(*LinearBackwardWeight(dy, x, DType::kF32), w).ok());
}

TEST(LinearRule, Refusals) {
  const LayoutType column = Leaf(kMesh, {kF, kN}, "S(0)@tp");
  // An invariant input that was not converted; an input that was not gathered.
  EXPECT_TRUE(
      StrContains(Outcome(Linear(Stream("S(0)@dp, I@tp"), column, nullptr)), "counts once"));
  EXPECT_TRUE(StrContains(Outcome(Linear(Stream("S(0)@dp, S(0)@tp"), column, nullptr)),
                          "its own two shares"));
  // A bias before the reduction.
  const LayoutType row = Leaf(kMesh, {kN, kF}, "S(1)@tp"), bias = Width("");
  EXPECT_TRUE(StrContains(Outcome(Linear(Hidden("S(1)@tp"), row, &bias)), "once per rank"));
  const LayoutType invariant = Width("I@tp");
  EXPECT_TRUE(StrContains(Outcome(Linear(Hidden("S(1)@tp"), row, &invariant)), "finished value"));
}

TEST(NormRule, SequenceParallelAndNot) {
  const struct {
    const char *x, *w, *dw;
  } kGood[] = {{"S(0)@dp, S(0)@tp", "", "F32[N=32] dp:P tp:P"},
               {"S(0)@dp, I@tp", "I@tp", "F32[N=32] dp:P tp:I"}};
  for (const auto& [x_spec, w_spec, dw] : kGood) {
    const LayoutType x = Stream(x_spec), w = Width(w_spec);
    EXPECT_TRUE(*RmsNorm(x, &w) == x);
    EXPECT_TRUE(*RmsNorm(x, nullptr) == x);
    const NormGradients d = *RmsNormBackward(x, &w, x, DType::kF32);
    EXPECT_TRUE(CheckDual(d.x, x).ok());
    EXPECT_TRUE(CheckDual(d.weight, w).ok());
    EXPECT_EQ(d.weight.ToString(), dw);
    EXPECT_FALSE(RmsNormBackward(x, nullptr, x, DType::kF32)->weight.defined());
  }
  // A gradient that is still a sum stays one.
  EXPECT_EQ(RmsNormBackward(Stream(""), nullptr, Stream("P@tp"), DType::kF32)->x.ToString(),
            "F32[B=2 L=64, N=32] tp:P");
}

TEST(NormRule, Refusals) {
  const LayoutType r = Width(""), i = Width("I@tp");
  EXPECT_TRUE(StrContains(Outcome(RmsNorm(Stream("S(1)@tp"), &r)), "looks at all of dimension n"));
  EXPECT_TRUE(StrContains(Outcome(RmsNorm(Stream("S(0)@tp"), &i)), "counts once"));
  EXPECT_TRUE(StrContains(Outcome(RmsNorm(Stream("I@tp"), &r)), "counts once"));
  EXPECT_TRUE(StrContains(Outcome(RmsNorm(Stream("P@tp"), &r)), "not linear"));
}

TEST(ResidualRule, SumsOfLikeTypesOnly) {
  for (const char* spec : {"S(0)@tp", "I@tp", "P@tp"}) {
    EXPECT_TRUE(Add(Stream(spec), Stream(spec)).ok()) << spec;
  }
  EXPECT_TRUE(StrContains(Outcome(Add(Stream("I@tp"), Stream(""))), "counts once"));
  EXPECT_TRUE(StrContains(Outcome(Add(Stream("I@tp"), Stream("S(0)@tp"))), "counts once"));
  EXPECT_TRUE(StrContains(Outcome(Add(Stream("S(0)@tp"), Stream("P@tp"))), "neither adding up"));
}

TEST(ResidualRule, GatedResidualOfEveryStream) {
  const struct {
    const char *stream, *gate;
  } kGood[] = {{"S(0)@dp, S(0)@tp", ""}, {"S(0)@dp, I@tp", "I@tp"}};
  for (const auto& [stream, gate_spec] : kGood) {
    const LayoutType h = Stream(stream), gate = Width(gate_spec);
    EXPECT_TRUE(*GatedResidual(h, h, gate) == h);
    const ResidualGradients d = *GatedResidualBackward(h, h, gate, h);
    EXPECT_TRUE(CheckDual(d.h, h).ok());
    EXPECT_TRUE(CheckDual(d.branch, h).ok());
    EXPECT_TRUE(CheckDual(d.gate, gate).ok());
  }
  EXPECT_TRUE(StrContains(Outcome(GatedResidual(Stream("I@tp"), Stream("I@tp"), Width(""))),
                          "counts once"));
}

TEST(GateRule, GateAndUpAreShardedAlike) {
  const LayoutType h = Hidden("S(0)@dp, S(1)@tp");
  EXPECT_TRUE(*Gate(h, h) == h);
  const GateGradients d = *GateBackward(h, h, h);
  EXPECT_TRUE(d.x == h && d.gate == h);
  EXPECT_TRUE(StrContains(Outcome(Gate(h, Hidden("S(0)@dp"))), "gate has all of dimension b"));
  EXPECT_TRUE(StrContains(Outcome(Gate(Hidden(""), Hidden("P@tp"))), "not linear"));
  EXPECT_EQ(Outcome(Gate(Hidden("P@tp"), Hidden(""))), "F32[B=2 L=64, F=16] tp:P");
}

TEST(EmbeddingRule, VocabularyParallel) {
  const LayoutType tokens = Leaf(kMesh, {kT}, "S(0)@dp", DType::kI32);
  const LayoutType table = Leaf(kMesh, {kV, kN}, "S(0)@tp");
  EXPECT_EQ(Outcome(Embedding(tokens, table, DType::kBF16)), "BF16[B=2 L=64, N=32] dp:S(B) tp:P");
  EXPECT_TRUE(CheckDual(*EmbeddingBackward(tokens, table, Stream("S(0)@dp")), table).ok());
  EXPECT_TRUE(StrContains(Outcome(Embedding(tokens, table, DType::kF32, /*masked=*/false)),
                          "without a mask"));
  EXPECT_TRUE(
      StrContains(Outcome(Embedding(Leaf(kMesh, {kT}, "S(0)@tp", DType::kI32), table, DType::kF32)),
                  "its own two shares"));
}

TEST(EmbeddingRule, WholeTable) {
  const LayoutType tokens = Leaf(kMesh, {kT}, "S(0)@dp, S(0)@tp", DType::kI32);
  const LayoutType table = Leaf(kMesh, {kV, kN}, "");
  const LayoutType x = *Embedding(tokens, table, DType::kF32);
  EXPECT_EQ(x.ToString(), "F32[B=2 L=64, N=32] dp:S(B) tp:S(L)");
  EXPECT_TRUE(CheckDual(*EmbeddingBackward(tokens, table, x), table).ok());
}

TEST(MapRule, IsNotLinear) {
  EXPECT_TRUE(*Map(Hidden("S(1)@tp")) == Hidden("S(1)@tp"));
  EXPECT_TRUE(StrContains(Outcome(Map(Hidden("P@tp"))), "not linear"));
}

TEST(ScaleRule, TheTokenCountIsGlobal) {
  const LayoutType loss = Leaf(kMesh, {}, "P@dp, I@tp");
  EXPECT_EQ(Outcome(Scale(loss, Leaf(kMesh, {}, "I@tp"))), "F32[] dp:P tp:I");
  EXPECT_TRUE(
      StrContains(Outcome(Scale(loss, Leaf(kMesh, {}, "V@dp, I@tp"))), "neither adding up"));
}

}  // namespace
}  // namespace headwise::rules
