#include "core/parallel/rules/attention_rules.h"

#include <string>

#include "absl/strings/match.h"
#include "core/parallel/step.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"

namespace headwise::rules {
namespace {

using ::absl::StrContains;
using ::headwise::testing::Leaf;
using ::headwise::testing::Outcome;

constexpr std::int64_t kG = 2, kM = 4, kD = 8;
const Dim kT = {Factor::Batch("B", 2), {"L", 64}};

LayoutType After(const char* step, const LayoutType& x) { return *Apply(*Step::Parse(step), x); }

// prepare_qkv and attention forward and backward on one mesh; every gradient is compared with its
// operand's dual. `heads` says how a packed row is sharded, `tokens` how T is.
void CheckAttention(const char* mesh, const std::string& tokens, const std::string& heads,
                    const Dim& packed_row) {
  const LayoutType packed =
      Leaf(mesh, {kT, packed_row}, (tokens + (heads.empty() ? "" : ", S(1)@" + heads)).c_str());
  const LayoutType w = Leaf(mesh, {{Factor::Whole("D", kD)}}, "");
  const LayoutType positions = Leaf(mesh, {kT}, tokens.c_str(), DType::kI64);
  const LayoutType sinks =
      Leaf(mesh, {{{"G", kG}, {"M", kM}}}, heads.empty() ? "" : ("S(0)@" + heads).c_str());
  const QkvOperands operands = {
      .q_weight = &w, .k_weight = &w, .positions = &positions, .norm = true};
  const auto qkv = PrepareQkv(operands, packed);
  ASSERT_TRUE(qkv.ok()) << qkv.status();
  // Keys and values of all tokens of a document.
  const bool cp = qkv->k.mesh().Find(MeshView::kDense, "cp")->size() == 1;
  QkvTypes all = *qkv;
  if (cp) {
    all.k = After("all_gather@cp -> R", all.k);
    all.v = After("all_gather@cp -> R", all.v);
  }
  const auto attention = Attention(all, &sinks, DType::kF32);
  ASSERT_TRUE(attention.ok()) << attention.status();
  EXPECT_TRUE(attention->o == all.q);
  const auto d = AttentionBackward(all, &sinks, *attention, attention->o);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_TRUE(CheckDual(d->qkv.q, all.q).ok()) << CheckDual(d->qkv.q, all.q);
  EXPECT_TRUE(CheckDual(d->qkv.k, all.k).ok()) << CheckDual(d->qkv.k, all.k);
  EXPECT_TRUE(CheckDual(d->qkv.v, all.v).ok()) << CheckDual(d->qkv.v, all.v);
  EXPECT_TRUE(CheckDual(d->sinks, sinks).ok()) << CheckDual(d->sinks, sinks);
  QkvTypes gradients = d->qkv;
  if (cp) {
    gradients.k = After("reduce_scatter@cp -> S(0)", gradients.k);
    gradients.v = After("reduce_scatter@cp -> S(0)", gradients.v);
  }
  const auto back = PrepareQkvBackward(operands, packed, gradients, DType::kF32);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(CheckDual(back->packed, packed).ok()) << CheckDual(back->packed, packed);
  for (const LayoutType& per_group : {back->q_weight, back->k_weight}) {
    EXPECT_EQ(per_group.GlobalShape(), (std::vector<std::int64_t>{kG, kD}));
    const LayoutType dw = *ReduceHeadNormGradient(per_group);
    EXPECT_TRUE(CheckDual(dw, w).ok()) << CheckDual(dw, w);
  }
}

TEST(AttentionRule, HeadsAndTokensAndContext) {
  const Dim row = InterleavedQkv(kG, kM, kD);
  CheckAttention("tp=2", "R@dp", "tp", row);
  CheckAttention("dp=2,tp=2", "S(0)@dp", "tp", row);
  CheckAttention("dp=2,cp=2", "S(0)@dp, S(0)@cp", "", row);
  CheckAttention("dp=2,cp=2,tp=2", "S(0)@dp, S(0)@cp", "tp", row);
}

TEST(AttentionRule, ContextParallelKeysAreGathered) {
  // Without documents apart, cp cuts the tokens: T = L.
  const Dim tokens = {{"L", 64}};
  const LayoutType q = Leaf("cp=2", {tokens, QueryHeads(kG, kM, kD)}, "S(0)@cp");
  const LayoutType k = Leaf("cp=2", {tokens, KeyHeads(kG, kD)}, "S(0)@cp");
  const QkvTypes shared = {.q = q, .k = k, .v = k};
  EXPECT_TRUE(StrContains(Outcome(Attention(shared, nullptr, DType::kF32).status()),
                          "sharded along dimension l [L=64] and along dimension s [L=64]"));
  const LayoutType all = After("all_gather@cp -> R", k);
  const auto o = Attention({.q = q, .k = all, .v = all}, nullptr, DType::kF32);
  ASSERT_TRUE(o.ok()) << o.status();
  EXPECT_TRUE(o->o == q);
  const auto d = AttentionBackward({.q = q, .k = all, .v = all}, nullptr, *o, q);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_EQ(d->qkv.k.ToString(), "F32[L=64, G=2 D=8] cp:P");
  EXPECT_TRUE(CheckDual(After("reduce_scatter@cp -> S(0)", d->qkv.k), k).ok());
  const LayoutType invariant = After("all_gather@cp -> I", k);
  EXPECT_TRUE(StrContains(
      Outcome(Attention({.q = q, .k = invariant, .v = invariant}, nullptr, DType::kF32).status()),
      "counts once"));
}

TEST(AttentionRule, AMaskIsOfTheRanksOwnQueries) {
  const char* mesh = "dp=2,cp=2,tp=2";
  const LayoutType tokens = Leaf(mesh, {kT}, "S(0)@dp, S(0)@cp", DType::kI32);
  const auto check = [&](const char* spec) {
    return Outcome(CheckMask(tokens, Leaf(mesh, {kT, QueryHeads(kG, kM, kD)}, spec)));
  };
  EXPECT_EQ(check("S(0)@dp, S(0)@cp, S(1)@tp"), Outcome(absl::OkStatus()));
  EXPECT_TRUE(StrContains(check("S(0)@dp"), "axis cp"));
  EXPECT_TRUE(StrContains(check("S(0)@dp"), "these are other queries"));
  EXPECT_TRUE(StrContains(check("S(0)@dp, S(0)@cp, S(0)@tp"), "axis tp"));
  EXPECT_TRUE(StrContains(check("S(0)@cp, S(0)@dp"), "in the same order"));
}

TEST(AttentionRule, TokensAndHeadsOfEveryPacking) {
  CheckAttention("dp=2", "S(0)@dp", "", SectionedQkv(kG, kM, kD));
  CheckAttention("dp=2", "S(0)@dp", "", InterleavedQkv(kG, kM, kD));
}

TEST(AttentionRule, ASectionedRowIsNotSharded) {
  const auto declared = LayoutType::Declare(*Mesh::Parse("tp=2"), {kT, SectionedQkv(kG, kM, kD)},
                                            DType::kF32, *LayoutSpec::Parse("S(1)@tp"));
  EXPECT_TRUE(StrContains(Outcome(declared), "slots is a concatenation [q 8 | k 2 | v 2]"));
}

TEST(AttentionRule, MixedTokenOrdersDoNotMeet) {
  const Dim tokens = {{"L", 64}}, reordered = {{.name = "L", .size = 64, .order = "zigzag"}};
  const LayoutType q = Leaf("cp=2", {tokens, QueryHeads(kG, kM, kD)}, "S(0)@cp");
  const LayoutType positions = Leaf("cp=2", {reordered}, "S(0)@cp", DType::kI64);
  const LayoutType packed = Leaf("cp=2", {tokens, InterleavedQkv(kG, kM, kD)}, "S(0)@cp");
  EXPECT_TRUE(StrContains(Outcome(PrepareQkv({.positions = &positions}, packed).status()),
                          "in the same order"));
  // Positions of the whole where the tokens are cut.
  const LayoutType whole = Leaf("cp=2", {tokens}, "", DType::kI64);
  EXPECT_TRUE(StrContains(Outcome(PrepareQkv({.positions = &whole}, packed).status()),
                          "positions has all of dimension t"));
}

TEST(AttentionRule, HeadNormWeights) {
  const LayoutType packed = Leaf("tp=2", {kT, InterleavedQkv(kG, kM, kD)}, "S(1)@tp");
  const LayoutType invariant = Leaf("tp=2", {{Factor::Whole("D", kD)}}, "I@tp");
  EXPECT_TRUE(StrContains(
      Outcome(PrepareQkv({.q_weight = &invariant, .k_weight = &invariant, .norm = true}, packed)
                  .status()),
      "counts once"));
}

// tp = 4 over 2 kv groups: q is sliced after the split, k and v are held twice.
TEST(AttentionRule, KvReplication) {
  const Mesh mesh = *(*Mesh::Parse("tp=4")).WithSubAxes("tp", {{"tp_kv", 2}, {"tp_rep", 2}});
  const LayoutType packed = Leaf(mesh, {kT, InterleavedQkv(kG, kM, kD)}, "S(1)@tp_kv");
  const LayoutType w = Leaf(mesh, {{Factor::Whole("D", kD)}}, "");
  const QkvOperands operands = {.q_weight = &w, .k_weight = &w, .norm = true};
  QkvTypes qkv = *PrepareQkv(operands, packed);
  const LayoutType unsliced = qkv.q;
  const Step slice = *Step::Parse("convert@tp_rep -> S(1)");
  qkv.q = *Apply(slice, qkv.q);
  EXPECT_EQ(qkv.q.ToString(), "F32[B=2 L=64, G=2 M=4 D=8] tp_kv:S(G) tp_rep:S(M)");
  const AttentionTypes o = *Attention(qkv, nullptr, DType::kF32);
  AttentionGradients d = *AttentionBackward(qkv, nullptr, o, o.o);
  EXPECT_EQ(d.qkv.k.ToString(), "F32[B=2 L=64, G=2 D=8] tp_kv:S(G) tp_rep:P");
  // A forgotten backward of the slice is seen.
  EXPECT_TRUE(
      StrContains(Outcome(PrepareQkvBackward(operands, packed, d.qkv, DType::kF32).status()),
                  "both must be sharded alike"));
  d.qkv.q = *Apply(BackwardOf(slice, unsliced), d.qkv.q);
  const QkvGradients back = *PrepareQkvBackward(operands, packed, d.qkv, DType::kF32);
  EXPECT_EQ(back.packed.ToString(), "F32[B=2 L=64, G=2 slots=4+1+1 D=8] tp_kv:S(G) tp_rep:P");
  EXPECT_EQ(ReduceHeadNormGradient(back.k_weight)->ToString(), "F32[D=8] tp_kv:P tp_rep:P");
}

}  // namespace
}  // namespace headwise::rules
