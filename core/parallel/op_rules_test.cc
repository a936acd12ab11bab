#include "core/parallel/op_rules.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/parallel/step.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::absl::StrContains;
using ::headwise::testing::Leaf;
using ::headwise::testing::Outcome;

const Dim kT = {Factor::Batch("B", 2), {"L", 64}};
const Dim kN = {{"N", 32}};
const Factor kSlots = Factor::Sum("slots", {{"q", {{"M", 4}}}, {"k", {}}, {"v", {}}});
const Dim kPacked = {{"G", 2}, kSlots, Factor::Whole("D", 8)};

TEST(Cast, WidensPartialsAndDoesNotNarrowThem) {
  EXPECT_EQ(Outcome(Cast(Leaf("tp=2", {kN}, "P@tp", DType::kBF16), DType::kF32)), "F32[N=32] tp:P");
  EXPECT_TRUE(StrContains(Outcome(Cast(Leaf("tp=2", {kN}, "P@tp"), DType::kBF16)),
                          "the operation is not linear"));
  EXPECT_EQ(Outcome(Cast(Leaf("tp=2", {kN}, "S(0)@tp"), DType::kBF16)), "BF16[N=32] tp:S(N)");
}

TEST(Views, KeepFactorsAndTheirShards) {
  const LayoutType packed = Leaf("dp=2,tp=2", {kT, kPacked}, "S(0)@dp, S(1)@tp");
  const LayoutType split = SplitDim(packed, 1, {"G"});
  EXPECT_EQ(split.ToString(), "F32[B=2 L=64, G=2, slots=4+1+1 D=8] dp:S(B) tp:S(G)");
  EXPECT_TRUE(MergeDims(split, 1, 2) == packed);
  EXPECT_EQ(SplitDim(packed, 1, {}).ToString(),
            "F32[B=2 L=64, 1, G=2 slots=4+1+1 D=8] dp:S(B) tp:S(G)");
  EXPECT_EQ(MergeDims(packed, 0, 2).LocalShape(0), (std::vector<std::int64_t>{64 * 48}));
}

TEST(SumFactors, ComeApartAndTogether) {
  const LayoutType split =
      SplitDim(SplitDim(Leaf("tp=2", {kT, kPacked}, "S(1)@tp"), 1, {"G"}), 2, {"slots"});
  const LayoutType q = *TakeTerm("split", split, 2, "q");
  const LayoutType k = *TakeTerm("split", split, 2, "k");
  EXPECT_EQ(q.ToString(), "F32[B=2 L=64, G=2, M=4, D=8] tp:S(G)");
  EXPECT_EQ(k.ToString(), "F32[B=2 L=64, G=2, 1, D=8] tp:S(G)");
  EXPECT_TRUE(*ConcatTerms("concat", {{"q", q}, {"k", k}, {"v", k}}, 2, kSlots) == split);
}

TEST(SumFactors, ShardedPartsAreNotConcatenated) {
  const Dim m = {{"M", 4}};
  const LayoutType q = Leaf("tp=2", {kT, m}, "S(1)@tp"), k = Leaf("tp=2", {kT, {}}, "");
  EXPECT_TRUE(StrContains(Outcome(ConcatTerms("concat", {{"q", q}, {"k", k}, {"v", k}}, 1, kSlots)),
                          "the ranks' concatenations would interleave the parts"));
  const LayoutType p = Leaf("tp=2", {kT, m}, "P@tp");
  EXPECT_TRUE(StrContains(Outcome(ConcatTerms("concat", {{"q", p}, {"k", k}, {"v", k}}, 1, kSlots)),
                          "counted once per rank"));
  const LayoutType kp = Leaf("tp=2", {kT, {}}, "P@tp");
  EXPECT_EQ(Outcome(ConcatTerms("concat", {{"q", p}, {"k", kp}, {"v", kp}}, 1, kSlots)),
            "F32[B=2 L=64, slots=4+1+1] tp:P");
}

std::string Hot(const char* tokens, const char* table, bool masked = true) {
  return Outcome(OneHot("embedding", {"tokens", Leaf("tp=2", {kT}, tokens, DType::kI32)},
                        {"table", Leaf("tp=2", {{{"V", 128}}, kN}, table)}, masked));
}

TEST(OneHot, IsShardedAsTheTableIs) {
  EXPECT_EQ(Hot("", "S(0)@tp"), "I32[B=2 L=64, V=128] tp:S(V)");
  EXPECT_EQ(Hot("S(0)@tp", ""), "I32[B=2 L=64, V=128] tp:S(B)");
  EXPECT_EQ(Hot("", "S(1)@tp"), "I32[B=2 L=64, V=128]");
  EXPECT_EQ(Hot("I@tp", "I@tp"), "I32[B=2 L=64, V=128] tp:I");
  EXPECT_TRUE(StrContains(Hot("S(0)@tp", "S(0)@tp"),
                          "sharded along dimension t [B=2 L=64] and along dimension v"));
  EXPECT_TRUE(StrContains(Hot("I@tp", "S(0)@tp"), "counts once"));
  EXPECT_TRUE(
      StrContains(Hot("", "S(0)@tp", false), "without a mask it would read some other row"));
}

TEST(TopK, NeedsAllOfTheDimension) {
  const auto best = [](const char* spec) {
    return Outcome(TopK("route", {"scores", Leaf("tp=2", {kT, {{"E", 8}}}, spec)}, {"k", 2}));
  };
  EXPECT_EQ(best("S(0)@tp"), "F32[B=2 L=64, k=2] tp:S(B)");
  EXPECT_TRUE(StrContains(best("S(1)@tp"), "looks at all of dimension e [E=8]"));
  EXPECT_TRUE(StrContains(best("P@tp"), "not linear"));
}

TEST(TakeRange, NotAlongAShard) {
  const auto range = [](int dim) {
    return Outcome(TakeRange("slice", {"x", Leaf("tp=2", {kT, kN}, "S(1)@tp")}, dim, {"some", 4}));
  };
  EXPECT_EQ(range(0), "F32[some=4, N=32] tp:S(N)");
  EXPECT_TRUE(StrContains(range(1), "which rank holds the range depends on its numbers"));
}

const Factor kE = {"E", 8};

TEST(ExpertRows, GoToTheirExpertsAndBack) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2,ep=2");
  const LayoutType x = Leaf(mesh, {kT, kN}, "S(0)@dp, S(0)@tp");
  const LayoutType rows = *GroupRows("dispatch", {"x", x}, kE, 2);
  EXPECT_EQ(rows.ToString(), "F32[E=8 R=32, N=32] dp:S(R) tp:S(R)");
  const LayoutType expert = *Apply(*Step::Parse("reinterpret_mesh -> expert"), rows);
  const LayoutType apart = SplitDim(expert, 0, {"E"});
  const LayoutType sent = *Apply(*Step::Parse("all_to_all@ep -> S(0)"), apart);
  EXPECT_EQ(sent.ToString(), "F32[E=8, R=32, N=32] edp:S(R) ep:S(E)");
  // Still with the experts.
  EXPECT_TRUE(
      StrContains(Outcome(UngroupRows("combine", {"rows", MergeDims(sent, 0, 2)}, {"x", x})),
                  "exchange them back (all_to_all) first"));
  const LayoutType home = MergeDims(*Apply(*Step::Parse("all_to_all@ep -> S(1)"), sent), 0, 2);
  EXPECT_TRUE(StrContains(Outcome(UngroupRows("combine", {"rows", home}, {"x", x})),
                          "reinterpret_mesh back first"));
  const LayoutType back = *Apply(*Step::Parse("reinterpret_mesh -> dense"), home);
  EXPECT_TRUE(*UngroupRows("combine", {"rows", back}, {"x", x}) == x);
}

TEST(ExpertRows, PartialsStayPartial) {
  const LayoutType x = Leaf("tp=2", {kT, kN}, "P@tp"), weights = Leaf("tp=2", {kT, {{"k", 2}}}, "");
  const LayoutType rows = *GroupRows("dispatch", {"x", x}, kE, 2);
  EXPECT_EQ(rows.ToString(), "F32[E=8 R=32, N=32] tp:P");
  EXPECT_EQ(Outcome(UngroupRows("combine", {"rows", rows}, {"weights", weights})),
            "F32[B=2 L=64, N=32] tp:P");
  const LayoutType choices = *GroupChoices("dispatch", {"weights", weights}, kE);
  EXPECT_EQ(choices.ToString(), "F32[E=8 R=32]");
  EXPECT_TRUE(*UngroupChoices("combine", {"rows", choices}, {"weights", weights}) == weights);
}

TEST(ExpertRows, BelongToTheirTokens) {
  const LayoutType x = Leaf("dp=2", {kT, kN}, "S(0)@dp"), y = Leaf("dp=2", {kT, kN}, "");
  EXPECT_TRUE(StrContains(
      Outcome(UngroupRows("combine", {"rows", *GroupRows("dispatch", {"x", x}, kE, 2)}, {"y", y})),
      "tokens that it does not hold"));
}

TEST(ReorderTokens, BeforeTheSplit) {
  const LayoutType x = Leaf("cp=2", {kT}, "");
  const LayoutType y = *ReorderTokens("reorder", {"x", x}, 0, "L", "zigzag");
  EXPECT_EQ(y.ToString(), "F32[B=2 L=64 (zigzag)]");
  EXPECT_TRUE(*ReorderTokens("reorder", {"y", y}, 0, "L", "") == x);
  EXPECT_TRUE(StrContains(
      Outcome(ReorderTokens("reorder", {"x", Leaf("cp=2", {{{"L", 64}}}, "S(0)@cp")}, 0, "L", "z")),
      "reorder before the split"));
}

TEST(RandomLike, StreamsDifferWhereTheDataDo) {
  const auto random = [](const char* spec, const std::vector<std::string>& folded) {
    return Outcome(RandomLike("dropout", {"x", Leaf("dp=2,tp=2", {kT, kN}, spec)}, folded));
  };
  EXPECT_EQ(random("S(0)@dp, I@tp", {"dp"}), "F32[B=2 L=64, N=32] dp:S(B) tp:I");
  EXPECT_EQ(random("S(0)@dp, P@tp", {"dp"}), "F32[B=2 L=64, N=32] dp:S(B)");
  EXPECT_TRUE(StrContains(random("S(0)@dp, I@tp", {}), "axis dp"));
  EXPECT_TRUE(StrContains(random("S(0)@dp", {"dp", "tp"}), "do not fold the axis into the seed"));
  EXPECT_TRUE(StrContains(random("V@dp", {}), "fold the axis into the seed"));
}

}  // namespace
}  // namespace headwise
