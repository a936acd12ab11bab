#include "optim/cut_blocks.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/heads/packed_qkv.h"
#include "core/parallel/tensor_layout.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::headwise::testing::Leaf;

const Dim kPacked = {{"G", 4},
                     Factor::Sum("slots", {{"q", {{"M", 2}}}, {"k", {}}, {"v", {}}}),
                     Factor::Whole("D", 6)};
const Dim kWidth = {{"N", 20}}, kFfn = {{"F", 12}};
const HeadBlocks kHeads = HeadBlocks::FromPacked(*PackedQkv::Interleaved({8, 4, 6}));

struct Matrix {
  std::string name;
  LayoutType type;
  HeadBlocks blocks;
};

CutPlan Plan(const std::vector<Matrix>& matrices, std::int64_t rank,
             std::int64_t round_elements = kRoundElements) {
  std::vector<ParameterShare> shares;
  for (const Matrix& m : matrices) {
    const Parameter p = {
        .name = m.name,
        .value = TensorLayout::Attach(
            Tensor::Empty(m.type.LocalShape(rank), DType::kF32, Device::kMeta), m.type)};
    shares.push_back(*ParameterShare::Create(p, rank));
  }
  std::vector<BlockedParameter> parameters;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    parameters.push_back({matrices[i].name, &shares[i], &matrices[i].blocks});
  }
  return PlanCutBlocks(parameters, rank, round_elements);
}

// Every element of a block is one rank's, once.
void ExpectTiled(const CutBlock& block) {
  std::vector<int> covered(static_cast<std::size_t>(block.rows * block.columns));
  for (const auto& pieces : block.pieces) {
    for (const BlockPiece& p : pieces) {
      for (std::int64_t r = 0; r < p.rows; ++r) {
        for (std::int64_t c = 0; c < p.columns; ++c) {
          ++covered.at(static_cast<std::size_t>((p.row + r) * block.columns + p.column + c));
        }
      }
    }
  }
  EXPECT_EQ(covered, std::vector<int>(covered.size(), 1));
}

TEST(CutBlocks, HeadsAreNeverShared) {
  const LayoutType type = Leaf("tp=4", {kPacked, kWidth}, "S(0)@tp");
  for (const Granularity granularity : {Granularity::kHead, Granularity::kKvGroup}) {
    const CutPlan plan = Plan({{"wqkv", type, *kHeads.Coarsen(granularity)}}, 2);
    EXPECT_TRUE(plan.groups.empty());
    EXPECT_EQ(plan.local[0]->size(), granularity == Granularity::kHead ? 4 : 1);
    EXPECT_EQ(plan.local[0]->axis_size(), 24);
  }
}

TEST(CutBlocks, ProjectionsAreSharedByTheRanksThatCutThem) {
  const LayoutType type = Leaf("dp=2,tp=4", {kPacked, kWidth}, "S(0)@tp");
  const CutPlan plan = Plan({{"wqkv", type, *kHeads.Coarsen(Granularity::kProjection)}}, 5);
  EXPECT_FALSE(plan.local[0].has_value());
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_EQ(plan.groups[0].members, (std::vector<std::int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(plan.groups[0].self, 1u);
  ASSERT_EQ(plan.groups[0].blocks.size(), 3u);
  for (const CutBlock& block : plan.groups[0].blocks) ExpectTiled(block);
  EXPECT_EQ(plan.groups[0].blocks[0].rows, 48);  // the queries: the most expensive comes first
}

// Of two axes that cut kv groups the coarser leaves pairs of them whole.
TEST(CutBlocks, OnlyTheAxesThatCutBlocksMakeTheGroup) {
  const Mesh mesh = *Mesh::Parse("tp=4")->WithSubAxes("tp", {{"a", 2}, {"b", 2}});
  const LayoutType type = Leaf(mesh, {{{"G", 4}, Factor::Whole("D", 6)}, kWidth}, "S(0)@a, S(0)@b");
  const HeadBlocks keys = *HeadBlocks::Separate(HeadRole::kKey, 4, 6, 1);
  const CutPlan plan = Plan({{"wk", type, *keys.Coarsen(Granularity::kHeadGroup, 2)}}, 3);
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_EQ(plan.groups[0].members, (std::vector<std::int64_t>{2, 3}));
  ASSERT_EQ(plan.groups[0].blocks.size(), 1u);
  ExpectTiled(plan.groups[0].blocks[0]);
}

TEST(CutBlocks, ABlockThatOneRankHasIsItsOwn) {
  // Pairs of heads: of eight query heads four lie on each rank, of two key heads one.
  const Dim packed = {{"G", 2},
                      Factor::Sum("slots", {{"q", {{"M", 4}}}, {"k", {}}, {"v", {}}}),
                      Factor::Whole("D", 6)};
  const HeadBlocks pairs = *HeadBlocks::FromPacked(*PackedQkv::Interleaved({8, 2, 6}))
                                .Coarsen(Granularity::kHeadGroup, 2);
  const CutPlan plan = Plan({{"wqkv", Leaf("tp=2", {packed, kWidth}, "S(0)@tp"), pairs}}, 0);
  int whole = 0, shared = 0;
  for (const CutBlock& block : plan.groups.at(0).blocks) {
    ExpectTiled(block);
    const std::int64_t there = block.ElementsOf(block.owner);
    whole += there == 12 * 20;
    shared += there == 6 * 20;
  }
  EXPECT_EQ(whole, 4);
  EXPECT_EQ(shared, 2);
}

TEST(CutBlocks, ColumnBlocksAreCutByRowsAndByColumns) {
  const Dim heads = {{"G", 4}, Factor::Whole("D", 6)};
  std::vector<HeadBlock> columns;
  for (std::int64_t h = 0; h < 4; ++h) {
    columns.push_back({.ranges = {{6 * h, 6}}, .role = HeadRole::kQuery, .head = h});
  }
  const HeadBlocks by_column = *HeadBlocks::Create(24, columns, BlockAxis::kColumns);
  EXPECT_EQ(Plan({{"wo", Leaf("tp=2", {kWidth, heads}, "S(1)@tp"), by_column}}, 1).local[0]->size(),
            2);
  const CutPlan plan = Plan({{"wo", Leaf("tp=2", {kWidth, heads}, "S(0)@tp"), by_column}}, 1);
  ASSERT_EQ(plan.groups.at(0).blocks.size(), 4u);
  for (const CutBlock& block : plan.groups[0].blocks) {
    EXPECT_EQ(block.rows, 20);
    EXPECT_EQ(block.columns, 6);
    ExpectTiled(block);
  }
}

TEST(CutBlocks, OwnersTakeTurnsFromTheMostExpensiveOn) {
  std::vector<Matrix> matrices;
  for (const char* name : {"b", "a", "c"}) {
    matrices.push_back({name, Leaf("tp=2", {kWidth, kFfn}, "S(1)@tp"), HeadBlocks::Whole(20)});
  }
  matrices.push_back(
      {"large", Leaf("tp=2", {kWidth, {{"F", 40}}}, "S(1)@tp"), HeadBlocks::Whole(20)});
  std::map<std::string, std::pair<std::size_t, std::int64_t>> dealt;
  const CutPlan plan = Plan(matrices, 0, 300);
  for (const CutBlock& block : plan.groups.at(0).blocks) {
    dealt[matrices[block.parameter].name] = {block.owner, block.round};
  }
  // 800 elements fill a round, and so do 240.
  const std::map<std::string, std::pair<std::size_t, std::int64_t>> expected = {
      {"large", {0, 0}}, {"a", {1, 0}}, {"b", {0, 1}}, {"c", {1, 1}}};
  EXPECT_EQ(dealt, expected);
  EXPECT_EQ(Plan(matrices, 0).groups[0].rounds, 1);
}

// What a rank thinks of a group is what the others think.
TEST(CutBlocks, AllRanksPlanTheSame) {
  const std::vector<Matrix> matrices = {
      {"w2", Leaf("dp=2,tp=2,ep=4", {kWidth, kFfn}, "S(1)@tp"), HeadBlocks::Whole(20)},
      {"w1", Leaf("dp=2,tp=2,ep=4", {kFfn, kWidth}, "S(0)@tp"), HeadBlocks::Whole(12)},
      {"wqkv", Leaf("dp=2,tp=2,ep=4", {kPacked, kWidth}, "S(0)@tp"),
       *kHeads.Coarsen(Granularity::kProjection)}};
  const CutGroup first = Plan(matrices, 2).groups.at(0), second = Plan(matrices, 3).groups.at(0);
  EXPECT_EQ(first.members, second.members);
  ASSERT_EQ(first.blocks.size(), second.blocks.size());
  for (std::size_t i = 0; i < first.blocks.size(); ++i) {
    EXPECT_EQ(first.blocks[i].parameter, second.blocks[i].parameter);
    EXPECT_EQ(first.blocks[i].owner, second.blocks[i].owner);
    EXPECT_EQ(first.blocks[i].ElementsOf(0), second.blocks[i].ElementsOf(0));
  }
}

}  // namespace
}  // namespace headwise
