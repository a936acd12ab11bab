#include "core/parallel/layout_type.h"

#include <string>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"

namespace headwise {
namespace {

using Sizes = std::vector<std::int64_t>;

const Dim kTokens = {Factor::Batch("B", 2), {"L", 4096}};
const Dim kWidth = {{"N", 512}};

Dim PackedRows(std::int64_t groups) {
  return {{"G", groups},
          Factor::Sum("slots", {{"q", {{"M", 8}}}, {"k", {}}, {"v", {}}}),
          Factor::Whole("D", 64)};
}

absl::StatusOr<LayoutType> Declared(const char* mesh, const std::vector<Dim>& shape,
                                    const char* spec) {
  return LayoutType::Declare(*Mesh::Parse(mesh), shape, DType::kF32, *LayoutSpec::Parse(spec));
}

std::string ErrorOf(const absl::StatusOr<LayoutType>& type) {
  return std::string(type.status().message());
}

// Nobody but declarations, rules and conversions makes a type: there is no constructor with
// contents, and no member changes one.
static_assert(!std::is_constructible_v<LayoutType, Mesh, std::vector<ShardedDim>>);
static_assert(
    std::is_const_v<std::remove_reference_t<decltype(std::declval<LayoutType&>().dims())>>);

TEST(LayoutType, DeclaresLeaves) {
  const LayoutType x = *Declared("dp=2,tp=4", {kTokens, kWidth}, "S(0)@dp, S(0)@tp");
  EXPECT_EQ(x.ToString(), "F32[B=2 L=4096, N=512] dp:S(B) tp:S(L)");
  EXPECT_EQ(x.GlobalShape(), (Sizes{8192, 512}));
  EXPECT_EQ(x.LocalShape(0), (Sizes{1024, 512}));
  EXPECT_EQ(x.LocalBytes(0), 1024 * 512 * 4);
  EXPECT_EQ(x.AxesOf(0), (std::vector<int>{0, 1}));
  EXPECT_EQ(x.ShardedBy(1), 0);
  const LayoutType w = *Declared("dp=2,tp=4", {kWidth}, "I@tp");
  EXPECT_EQ(w.ToString(/*brief=*/false), "F32[N=512] dp:R tp:I");
  EXPECT_FALSE(LayoutType().defined());
}

TEST(LayoutType, AxesShardInTheirOrder) {
  const Dim tokens = {{"T", 64}};
  const LayoutType ab = *Declared("dp=2,tp=4", {tokens}, "S(0)@dp, S(0)@tp");
  const LayoutType ba = *Declared("dp=2,tp=4", {tokens}, "S(0)@tp, S(0)@dp");
  EXPECT_EQ(ab.LocalShape(0), ba.LocalShape(0));
  EXPECT_FALSE(ab == ba);
}

TEST(LayoutType, WholeHeadsOnly) {
  EXPECT_EQ(Declared("tp=2", {PackedRows(2)}, "S(0)@tp")->LocalShape(0), (Sizes{10 * 64}));
  EXPECT_EQ(
      ErrorOf(Declared("tp=4", {PackedRows(2)}, "S(0)@tp")),
      "axis tp (4) cannot shard dimension 0 [G=2 slots=8+1+1 D=64]: 4 does not divide G=2; tp "
      "= 1, 2 would do, or sub-axes of tp, the first of size 2 for G, the second of size 2 "
      "replicating it");
  EXPECT_EQ(
      ErrorOf(Declared("tp=3", {PackedRows(4)}, "S(0)@tp")),
      "axis tp (3) cannot shard dimension 0 [G=4 slots=8+1+1 D=64]: 3 does not divide G=4; tp "
      "= 1, 2, 4 would do");
  EXPECT_EQ(ErrorOf(Declared("cp=2,tp=2", {PackedRows(2)}, "S(0)@cp, S(0)@tp")),
            "axis tp (2) cannot shard dimension 0 [G=2 slots=8+1+1 D=64]: slots is a concatenation "
            "[q 8 | k 1 | v 1], and a rank's share of it is not a share of each part; interleave "
            "the parts, so that an outer factor is sharded");
  EXPECT_EQ(
      ErrorOf(Declared("cp=2,tp=2", {{{"G", 2}, Factor::Whole("D", 64)}}, "S(0)@cp, S(0)@tp")),
      "axis tp (2) cannot shard dimension 0 [G=2 D=64]: only D=64 is left of it, which stays "
      "whole");
  EXPECT_EQ(ErrorOf(Declared("cp=2,tp=2", {{{"G", 2}}}, "S(0)@cp, S(0)@tp")),
            "axis tp (2) cannot shard dimension 0 [G=2]: nothing is left of it to shard");
  EXPECT_EQ(ErrorOf(Declared("cp=2,tp=4", {{{"E", 12}}}, "S(0)@cp, S(0)@tp")),
            "axis tp (4) cannot shard dimension 0 [E=12]: 4 does not divide the 6 that is left of "
            "E=12; tp = 1, 2, 3, 6 would do");
}

TEST(LayoutType, SizeTablesMakeUnevenShares) {
  const LayoutType x = *Declared("dp=2,tp=2", {{{"T", 5}}, kWidth}, "S(0: 3 2)@dp");
  EXPECT_FALSE(x.uniform());
  EXPECT_EQ(x.LocalShape(0), (Sizes{3, 512}));
  EXPECT_EQ(x.LocalShape(1), (Sizes{3, 512}));
  EXPECT_EQ(x.LocalShape(2), (Sizes{2, 512}));
  EXPECT_EQ(x.ToString(), "F32[T=5, N=512] dp:S(T: 3 2)");
  EXPECT_FALSE(Declared("dp=2", {{{"T", 5}}}, "S(0: 3 3)@dp").ok());
  EXPECT_FALSE(Declared("dp=2", {{{"T", 5}}}, "S(0: 5)@dp").ok());
  EXPECT_FALSE(Declared("dp=2", {{{"T", 5}}}, "S(0: 6 -1)@dp").ok());
}

TEST(LayoutType, RaggedSharesAreRoundedUp) {
  EXPECT_EQ(Declared("dp=4", {{Factor::Ragged("R", 10)}}, "S(0)@dp")->LocalShape(0), (Sizes{3}));
}

TEST(LayoutType, SubAxesShareAnAxisName) {
  const Mesh mesh = *(*Mesh::Parse("tp=4")).WithSubAxes("tp", {{"tp_kv", 2}, {"tp_rep", 2}});
  const LayoutType gate = *LayoutType::Declare(mesh, {{{"G", 2}, {"M", 8}, Factor::Whole("D", 64)}},
                                               DType::kF32, *LayoutSpec::Parse("S(0)@tp"));
  EXPECT_EQ(gate.ToString(), "F32[G=2 M=8 D=64] tp_kv:S(G) tp_rep:S(M)");
}

TEST(LayoutType, RefusesImpossibleSpecs) {
  EXPECT_EQ(ErrorOf(Declared("dp=2", {kWidth}, "S(0)@dp, R@dp")),
            "layout 'S(0)@dp, R@dp': axis dp occurs twice in one tensor");
  EXPECT_EQ(ErrorOf(Declared("dp=2", {kWidth}, "S(1)@dp")),
            "layout 'S(1)@dp': dimension 1 of a tensor of rank 1");
  EXPECT_EQ(ErrorOf(Declared("dp=2", {kWidth}, "I@ep")),
            "no axis 'ep' in the dense view of the mesh; it has cp, dp, tp");
  for (const char* text : {"S@dp", "S(0)", "X@dp", "S(-1)@dp", "S(0@dp", "R@", "S(0: x)@dp"}) {
    EXPECT_FALSE(LayoutSpec::Parse(text).ok()) << text;
  }
}

TEST(LayoutSpec, TextRoundTrips) {
  for (const char* text : {"", "S(0)@dp, I@tp", "expert: S(0)@ep, P@edp", "S(1: 3 2)@cp", "V@dp"}) {
    EXPECT_EQ(LayoutSpec::Parse(text)->ToString(), text);
  }
}

TEST(CheckDual, KnowsTheGradientOfEveryType) {
  const struct {
    const char *value, *gradient;
  } kDuals[] = {{"R@tp", "P@tp"},
                {"I@tp", "I@tp"},
                {"V@tp", "V@tp"},
                {"P@tp", "R@tp"},
                {"S(0)@tp", "S(0)@tp"}};
  for (const auto& [value, dual] : kDuals) {
    for (const char* gradient : {"R@tp", "I@tp", "V@tp", "P@tp", "S(0)@tp", "S(1)@tp"}) {
      const LayoutType v = *Declared("tp=2", {kTokens, kWidth}, value);
      const LayoutType g = *Declared("tp=2", {kTokens, kWidth}, gradient);
      EXPECT_EQ(CheckDual(g, v).ok(), std::string(gradient) == dual) << gradient << " of " << value;
    }
  }
  EXPECT_EQ(
      CheckDual(*Declared("tp=2", {kWidth}, "R@tp"), *Declared("tp=2", {kWidth}, "R@tp")).message(),
      "gradient F32[N=512] of F32[N=512]: on axis tp it is R, and the gradient of R is P");
}

TEST(CheckDual, ComparesShapesAndTokenOrders) {
  const Dim reordered = {Factor::Batch("B", 2), {.name = "L", .size = 4096, .order = "zigzag"}};
  const LayoutType x = *Declared("dp=2", {kTokens}, "S(0)@dp");
  EXPECT_EQ(CheckDual(*Declared("dp=2", {reordered}, "S(0)@dp"), x).message(),
            "gradient F32[B=2 L=4096 (zigzag)] dp:S(B) of F32[B=2 L=4096] dp:S(B): dimension 0 "
            "differs: [B=2 L=4096 (zigzag)] and [B=2 L=4096]");
  EXPECT_FALSE(CheckDual(*Declared("dp=2", {kTokens, kWidth}, "S(0)@dp"), x).ok());
  EXPECT_FALSE(CheckDual(*Declared("dp=4", {kTokens}, "V@dp"), x).ok());
}

}  // namespace
}  // namespace headwise
