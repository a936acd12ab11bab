#include "core/parallel/step.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::headwise::testing::Leaf;
using ::headwise::testing::Outcome;

const Dim kT = {{"T", 64}};
const Dim kN = {{"N", 32}};

std::string After(const char* step, const LayoutType& x) {
  const auto parsed = Step::Parse(step);
  if (!parsed.ok()) return std::string(parsed.status().message());
  return Outcome(Apply(*parsed, x));
}

LayoutType X(const char* spec, const char* mesh = "tp=2") { return Leaf(mesh, {kT, kN}, spec); }

// Every combination of a kind and two types: possible exactly if the table has it, and otherwise
// refused with a reason.
TEST(Step, KnowsTheRowsOfTheTableAndNoOthers) {
  const std::set<std::string> possible = {
      "all_reduce P R",     "all_reduce P I", "all_gather S R", "all_gather S I",
      "reduce_scatter P S", "all_to_all S S", "convert I R",    "convert R S",
      "convert I S",        "convert R P",    "convert S P",    "reinterpret V P"};
  int tried = 0;
  for (const StepKind kind : {StepKind::kAllReduce, StepKind::kAllGather, StepKind::kReduceScatter,
                              StepKind::kAllToAll, StepKind::kConvert, StepKind::kReinterpret}) {
    for (const char* from : {"R", "I", "V", "P", "S(1)"}) {
      for (const char* to : {"R", "I", "V", "P", "S(0)"}) {
        const std::string step = absl::StrCat(Name(kind), "@tp -> ", to);
        const std::string row =
            absl::StrCat(Name(kind), " ", std::string(from, 1), " ", std::string(to, 1));
        const LayoutType x = X(absl::StrCat(from, "@tp").c_str());
        const auto result = Apply(*Step::Parse(step), x);
        EXPECT_EQ(result.ok(), possible.contains(row)) << row << ": " << Outcome(result);
        if (result.ok()) {
          EXPECT_EQ(std::string(1, result->AxisToString(0)[0]), std::string(to, 1));
        } else {
          EXPECT_TRUE(absl::StrContains(
              result.status().message(),
              absl::StrCat(", not ", std::string(from, 1), " -> ", std::string(to, 1), ": ")))
              << result.status();
        }
        ++tried;
      }
    }
  }
  EXPECT_EQ(tried, 150);
}

// The backward of a step takes the dual of its result to the dual of its operand.
TEST(Step, BackwardsGoBetweenDuals) {
  const struct {
    const char *from, *step, *gradient, *backward;
  } kRows[] = {
      {"P@tp", "all_reduce@tp -> R", "P@tp", "all_reduce@tp -> R"},
      {"P@tp", "all_reduce@tp -> I", "I@tp", "convert@tp -> R"},
      {"S(0)@tp", "all_gather@tp -> R", "P@tp", "reduce_scatter@tp -> S(0)"},
      {"S(1)@tp", "all_gather@tp -> I", "I@tp", "convert@tp -> S(1)"},
      {"P@tp", "reduce_scatter@tp -> S(1)", "S(1)@tp", "all_gather@tp -> R"},
      {"S(0)@tp", "all_to_all@tp -> S(1)", "S(1)@tp", "all_to_all@tp -> S(0)"},
      {"I@tp", "convert@tp -> R", "P@tp", "all_reduce@tp -> I"},
      {"R@tp", "convert@tp -> S(0)", "S(0)@tp", "convert@tp -> P"},
      {"I@tp", "convert@tp -> S(0)", "S(0)@tp", "all_gather@tp -> I"},
      {"R@tp", "convert@tp -> P", "R@tp", "convert@tp -> P"},
      {"S(1)@tp", "convert@tp -> P", "R@tp", "convert@tp -> S(1)"},
      {"V@tp", "reinterpret@tp -> P", "R@tp", "reinterpret@tp -> V"},
      {"S(0: 24 40)@tp", "all_gather@tp -> R", "P@tp", "reduce_scatter@tp -> S(0: 24 40)"},
  };
  for (const auto& row : kRows) {
    const LayoutType x = X(row.from);
    const Step step = *Step::Parse(row.step);
    ASSERT_TRUE(Apply(step, x).ok()) << row.step << ": " << Outcome(Apply(step, x));
    EXPECT_TRUE(CheckDual(X(row.gradient), *Apply(step, x)).ok()) << row.step;
    const Step back = BackwardOf(step, x);
    EXPECT_EQ(back.ToString(), row.backward);
    const auto dx = Apply(back, X(row.gradient));
    ASSERT_TRUE(dx.ok()) << dx.status();
    EXPECT_TRUE(CheckDual(*dx, x).ok()) << row.step << ": " << CheckDual(*dx, x);
  }
}

// R -> V -> P would be the value once per rank.
TEST(Step, AReplicateBecomesVaryingInTheBackwardOnly) {
  EXPECT_TRUE(absl::StrContains(After("reinterpret@tp -> V", X("")), "where it is its backward"));
  const Step back = BackwardOf(*Step::Parse("reinterpret@tp -> P"), X("V@tp"));
  EXPECT_EQ(Outcome(Apply(back, X(""))), "F32[T=64, N=32] tp:V");
}

// Rows of experts go to their experts and back. Nothing else cuts or joins them.
TEST(Step, RowsOfExpertsAreExchangedOnly) {
  const Dim experts = {{"E", 4}}, rows = {Factor::Ragged("R", 16)};
  const auto after = [&](const char* step, const char* spec) {
    return After(step, Leaf("tp=2", {experts, rows, kN}, spec));
  };
  EXPECT_EQ(after("all_to_all@tp -> S(0)", "S(1)@tp"), "F32[E=4, R=16, N=32] tp:S(E)");
  EXPECT_EQ(after("all_to_all@tp -> S(1)", "S(0)@tp"), "F32[E=4, R=16, N=32] tp:S(R)");
  EXPECT_EQ(after("all_reduce@tp -> R", "P@tp"), "F32[E=4, R=16, N=32]");
  EXPECT_EQ(after("convert@tp -> P", ""), "F32[E=4, R=16, N=32] tp:P");
  const struct {
    const char *step, *spec;
  } kRefused[] = {
      {"all_to_all@tp -> S(2)", "S(0)@tp"}, {"all_to_all@tp -> S(2)", "S(1)@tp"},
      {"all_to_all@tp -> S(0)", "S(2)@tp"}, {"all_gather@tp -> R", "S(1)@tp"},
      {"all_gather@tp -> R", "S(0)@tp"},    {"reduce_scatter@tp -> S(1)", "P@tp"},
      {"convert@tp -> S(0)", ""},           {"convert@tp -> P", "S(1)@tp"},
  };
  for (const auto& [step, spec] : kRefused) {
    EXPECT_TRUE(absl::StrContains(after(step, spec), "depends on the tokens"))
        << step << " of " << spec << ": " << after(step, spec);
  }
}

TEST(Step, MessagesSayWhy) {
  const struct {
    const char *from, *step, *words;
  } kRows[] = {
      {"R@tp", "all_reduce@tp -> R", "multiplies it by the number of ranks"},
      {"I@tp", "all_reduce@tp -> I", "multiplies it by the number of ranks"},
      {"S(0)@tp", "all_reduce@tp -> R", "put side by side, not added up: all_gather"},
      {"V@tp", "all_reduce@tp -> R", "reinterpret V -> P says so"},
      {"P@tp", "all_reduce@tp -> S(0)", "so the result is R or I"},
      {"P@tp", "reduce_scatter@tp -> R", "so the result is S"},
      {"P@tp", "all_gather@tp -> R", "added up, not put side by side: all_reduce"},
      {"V@tp", "all_gather@tp -> R", "does not say in what order"},
      {"R@tp", "all_gather@tp -> R", "has the whole already"},
      {"P@tp", "convert@tp -> R", "finished by a reduction only"},
      {"P@tp", "convert@tp -> I", "finished by a reduction only"},
      {"V@tp", "convert@tp -> R", "or that they are the same"},
      {"V@tp", "convert@tp -> I", "or that they are the same"},
      {"V@tp", "reinterpret@tp -> R", "does not make them so"},
      {"P@tp", "reinterpret@tp -> V", "does not make them so"},
      {"R@tp", "convert@tp -> I", "would drop the other ranks' parts"},
      {"S(0)@tp", "convert@tp -> R", "lacks the other ranks' shares: all_gather"},
      {"I@tp", "convert@tp -> P", "convert it to R first"},
      {"R@tp", "convert@tp -> R", "it has this type already"},
      {"P@tp", "all_to_all@tp -> S(0)", "from S to S only"},
      {"S(0)@tp", "all_to_all@tp -> S(0)", "dimension 0 is sharded by this axis already"},
      {"R@tp", "convert@tp -> S(2)", "there is no dimension 2"},
  };
  for (const auto& row : kRows) {
    EXPECT_TRUE(absl::StrContains(After(row.step, X(row.from)), row.words))
        << row.step << ": " << After(row.step, X(row.from));
  }
  EXPECT_EQ(
      After("all_reduce@tp -> R", X("")),
      "all_reduce@tp -> R: axis tp: x F32[T=64, N=32]: all_reduce knows P -> R, P -> I, not R "
      "-> R: there is no sum to make: every rank has the value already, and adding them up "
      "multiplies it by the number of ranks");
}

// Every conversion that is not a row of the table has its reason.
TEST(Step, ImpossibleConversionsSayWhy) {
  const struct {
    const char *from, *to, *words;
  } kRows[] = {
      {"R", "R", "has this type already"},
      {"R", "I", "would drop the other ranks' parts"},
      {"R", "V", "no rank would keep what the others have"},
      {"I", "I", "has this type already"},
      {"I", "V", "no rank would keep what the others have"},
      {"I", "P", "convert it to R first"},
      {"V", "R", "nothing says how the ranks' data make a whole, or that they are the same"},
      {"V", "I", "nothing says how the ranks' data make a whole, or that they are the same"},
      {"V", "V", "nothing says how the ranks' data make a whole"},
      {"V", "P", "nothing says how the ranks' data make a whole"},
      {"V", "S(0)", "nothing says how the ranks' data make a whole"},
      {"P", "R", "finished by a reduction only"},
      {"P", "I", "finished by a reduction only"},
      {"P", "V", "finished by a reduction only"},
      {"P", "P", "finished by a reduction only"},
      {"P", "S(0)", "finished by a reduction only: all_reduce or reduce_scatter"},
      {"S(1)", "R", "lacks the other ranks' shares: all_gather"},
      {"S(1)", "I", "lacks the other ranks' shares: all_gather"},
      {"S(1)", "V", "S says what V says"},
      {"S(1)", "S(0)", "by an all_to_all"},
  };
  std::set<std::string> refused;
  for (const auto& [from, to, words] : kRows) {
    const std::string step = absl::StrCat("convert@tp -> ", to);
    const std::string message = After(step.c_str(), X(absl::StrCat(from, "@tp").c_str()));
    EXPECT_TRUE(absl::StrContains(message, words)) << from << " -> " << to << ": " << message;
    refused.insert(absl::StrCat(from, to));
  }
  EXPECT_EQ(refused.size(), 20u);  // of 25; I -> R, R -> S, I -> S, R -> P and S -> P are possible
  // A reinterpretation is true of V -> P alone.
  for (const char* from : {"R", "I", "V", "P", "S(1)"}) {
    for (const char* to : {"R", "I", "V", "P"}) {
      const std::string step = absl::StrCat("reinterpret@tp -> ", to);
      const std::string message = After(step.c_str(), X(absl::StrCat(from, "@tp").c_str()));
      EXPECT_EQ(absl::StrContains(message, "does not make them so"), std::string(from) + to != "VP")
          << from << " -> " << to << ": " << message;
    }
  }
}

TEST(Step, OnlyTheInnermostAxisMoves) {
  const LayoutType x = X("S(0)@dp, S(0)@tp", "dp=2,tp=2");
  EXPECT_EQ(After("all_gather@tp -> R", x), "F32[T=64, N=32] dp:S(T)");
  for (const char* step : {"all_gather@dp -> R", "all_to_all@dp -> S(1)"}) {
    EXPECT_TRUE(absl::StrContains(After(step, x), "cut further by axis tp")) << After(step, x);
  }
  // A new axis is the innermost.
  const LayoutType y = *Apply(*Step::Parse("convert@dp -> S(0)"), X("S(0)@tp", "dp=2,tp=2"));
  EXPECT_EQ(y.AxesOf(0), (std::vector<int>{1, 0}));
}

TEST(Step, SharesMustDivide) {
  EXPECT_TRUE(
      absl::StrContains(After("convert@tp -> S(0)", Leaf("tp=4", {{{"G", 2}, {"M", 8}}}, "")),
                        "4 does not divide G=2"));
}

TEST(Step, SubAxesMoveTogether) {
  const Mesh mesh = *(*Mesh::Parse("tp=4")).WithSubAxes("tp", {{"tp_kv", 2}, {"tp_rep", 2}});
  const LayoutType p = Leaf(mesh, {kT, kN}, "P@tp");
  EXPECT_EQ(After("reduce_scatter@tp -> S(0)", p), "F32[T=64, N=32] tp_kv:S(T) tp_rep:S(T)");
  EXPECT_EQ(After("all_gather@tp -> R", Leaf(mesh, {kT, kN}, "S(0)@tp")), "F32[T=64, N=32]");
  EXPECT_EQ(After("all_reduce@tp_rep -> I", p), "F32[T=64, N=32] tp_kv:P tp_rep:I");
}

TEST(Step, AxesOfSizeOneAndUnknownAxes) {
  EXPECT_EQ(After("all_reduce@cp -> R", X("")), "F32[T=64, N=32]");
  EXPECT_TRUE(absl::StrContains(After("all_reduce@pp -> R", X("")), "no axis 'pp'"));
}

TEST(Step, ANarrowReductionNamesItsDtype) {
  const LayoutType x = Leaf("tp=2", {kT}, "P@tp", DType::kBF16);
  EXPECT_TRUE(absl::StrContains(After("all_reduce@tp -> R", x), "all_reduce(F32) or"));
  EXPECT_EQ(After("all_reduce(F32)@tp -> R", x), "BF16[T=64]");
  EXPECT_EQ(After("reduce_scatter(BF16)@tp -> S(0)", x), "BF16[T=64] tp:S(T)");
  const LayoutType shard = Leaf("tp=2", {kT}, "S(0)@tp", DType::kBF16);
  EXPECT_EQ(BackwardOf(*Step::Parse("all_gather(F32)@tp -> R"), shard).ToString(),
            "reduce_scatter(F32)@tp -> S(0)");
}

std::string OnExperts(const char* mesh, const char* spec) {
  return After("reinterpret_mesh -> expert", X(spec, mesh));
}

TEST(ReinterpretMesh, GroupsOfAxesCoverTheSameRanks) {
  // {dp} = {edp}, {tp} = {ep}.
  EXPECT_EQ(OnExperts("dp=2,tp=2,ep=2", "S(0)@dp, P@tp"), "F32[T=64, N=32] edp:S(T) ep:P");
  // {dp, tp} = {ep}.
  EXPECT_EQ(OnExperts("dp=2,tp=2,ep=4", "S(0)@dp, S(0)@tp"), "F32[T=64, N=32] ep:S(T)");
  // {dp, tp} = {edp, ep}: the cuts do not meet inside.
  EXPECT_EQ(Outcome(Apply(*Step::Parse("reinterpret_mesh -> expert"),
                          Leaf("dp=3,tp=2,ep=3", {{{"T", 12}}}, "S(0)@dp, S(0)@tp"))),
            "F32[T=12] edp:S(T) ep:S(T)");
}

TEST(ReinterpretMesh, TypesMustBeUniform) {
  EXPECT_TRUE(absl::StrContains(OnExperts("dp=2,tp=2,ep=4", "S(0)@dp"),
                                "the axes {dp,tp} cover the ranks of {ep}, so the type must be "
                                "uniform on them: here the types differ"));
  EXPECT_TRUE(absl::StrContains(OnExperts("dp=2,tp=2,ep=4", "S(0)@dp, S(1)@tp"),
                                "consecutively and in this order"));
  EXPECT_TRUE(absl::StrContains(OnExperts("dp=2,tp=2,ep=4", "S(0)@tp, S(0)@dp"),
                                "consecutively and in this order"));
  EXPECT_TRUE(absl::StrContains(OnExperts("dp=2,tp=2,ep=2", "S(0)@tp, S(0)@dp"),
                                "do not come in the order of the mesh"));
}

TEST(ReinterpretMesh, IsItsOwnInverse) {
  const LayoutType x = X("S(0)@dp, S(0)@cp, S(0)@tp", "dp=2,cp=2,tp=2,ep=4");
  const Step there = *Step::Parse("reinterpret_mesh -> expert");
  const LayoutType y = *Apply(there, x);
  EXPECT_EQ(y.ToString(), "F32[T=64, N=32] edp:S(T) ep:S(T)");
  EXPECT_EQ(BackwardOf(there, x).ToString(), "reinterpret_mesh -> dense");
  EXPECT_TRUE(*Apply(BackwardOf(there, x), y) == x);
  EXPECT_TRUE(absl::StrContains(Outcome(Apply(there, y)), "in the expert view already"));
}

TEST(Step, BytesSent) {
  const auto bytes = [](const char* step, const char* spec) {
    return BytesSent(*Step::Parse(step), X(spec, "tp=4"));
  };
  const std::int64_t whole = 64 * 32 * 4;
  EXPECT_EQ(bytes("all_reduce@tp -> R", "P@tp"), 2 * 3 * whole / 4);
  EXPECT_EQ(bytes("all_gather@tp -> R", "S(0)@tp"), 3 * whole / 4);
  EXPECT_EQ(bytes("reduce_scatter@tp -> S(0)", "P@tp"), 3 * whole / 4);
  EXPECT_EQ(bytes("all_to_all@tp -> S(1)", "S(0)@tp"), 3 * (whole / 4) / 4);
  EXPECT_EQ(bytes("convert@tp -> S(0)", "R@tp"), 0);
  EXPECT_EQ(bytes("all_reduce@cp -> R", ""), 0);
}

TEST(Step, TextRoundTrips) {
  for (const char* text : {"all_reduce@tp -> R", "reduce_scatter(F32)@tp -> S(0)",
                           "all_to_all@ep -> S(1)", "convert@tp -> P", "reinterpret@dp -> P",
                           "reinterpret_mesh -> expert", "reduce_scatter@dp -> S(0: 3 2)"}) {
    ASSERT_TRUE(Step::Parse(text).ok()) << text;
    EXPECT_EQ(Step::Parse(text)->ToString(), text);
  }
  for (const char* text :
       {"", "all_reduce", "all_reduce@tp", "sum@tp -> R", "all_reduce(F8)@tp -> R",
        "all_reduce@tp -> X", "reinterpret_mesh -> tp", "all_reduce -> R"}) {
    EXPECT_TRUE(absl::StrContains(Step::Parse(text).status().message(), "must be like")) << text;
  }
}

}  // namespace
}  // namespace headwise
