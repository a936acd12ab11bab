// Roles decide the group, declared head blocks the blocks; everything that cannot be right is an
// error that names it.
#include "optim/groups.h"

#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "optim/testing/test_model.h"

namespace headwise {
namespace {

Parameter OnMeta(std::string name, ParameterRole role, Shape shape) {
  return {.name = std::move(name),
          .role = role,
          .value = Tensor::Empty(shape, DType::kF32, Device::kMeta),
          .gradient = Tensor::Empty(shape, DType::kF32, Device::kMeta)};
}

Parameter PackedOnMeta(std::string name, std::int64_t query_heads, std::int64_t kv_heads) {
  const PackedQkv layout = *PackedQkv::Interleaved({query_heads, kv_heads, 4});
  Parameter p = OnMeta(std::move(name), ParameterRole::kPackedQkv, {layout.row_width(), 16});
  p.head_blocks = HeadBlocks::FromPacked(layout);
  return p;
}

absl::StatusOr<std::vector<GroupedParameter>> Assign(const std::vector<Parameter>& parameters,
                                                     Granularity granularity,
                                                     std::int64_t head_group_size = 0) {
  std::vector<const Parameter*> pointers;
  for (const Parameter& p : parameters) pointers.push_back(&p);
  return AssignGroups(pointers, granularity, head_group_size);
}

std::string Error(const std::vector<Parameter>& parameters,
                  Granularity granularity = Granularity::kHead, std::int64_t head_group_size = 0) {
  return std::string(Assign(parameters, granularity, head_group_size).status().message());
}

TEST(AssignGroups, MuonTakesHiddenMatricesAndAdamWTheRest) {
  const TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
  const std::vector<Parameter*> parameters = model.pointers();
  const auto grouped = AssignGroups(
      std::vector<const Parameter*>(parameters.begin(), parameters.end()), Granularity::kHead, 0);
  ASSERT_TRUE(grouped.ok()) << grouped.status();
  std::map<std::string, std::pair<OptimizerGroup, std::int64_t>> found;
  for (const GroupedParameter& g : *grouped) {
    found[g.assignment.name] = {g.assignment.group, g.assignment.blocks};
    EXPECT_EQ(g.assignment.elements, model.Get(g.assignment.name).value.size());
    EXPECT_EQ(g.blocks.has_value(), g.assignment.group != OptimizerGroup::kAdamW);
  }
  const std::map<std::string, std::pair<OptimizerGroup, std::int64_t>> expected = {
      {"embedding", {OptimizerGroup::kAdamW, 0}},  {"norm", {OptimizerGroup::kAdamW, 0}},
      {"wqkv", {OptimizerGroup::kMuonPerHead, 8}}, {"wqkv_bias", {OptimizerGroup::kAdamW, 0}},
      {"gate", {OptimizerGroup::kMuon, 1}},        {"wo", {OptimizerGroup::kMuon, 1}},
      {"router", {OptimizerGroup::kAdamW, 0}},     {"experts", {OptimizerGroup::kMuon, 3}},
      {"w1", {OptimizerGroup::kMuon, 1}},          {"w2", {OptimizerGroup::kMuon, 1}},
      {"head", {OptimizerGroup::kAdamW, 0}},
  };
  EXPECT_EQ(found, expected);
}

TEST(AssignGroups, EveryHiddenRoleWithOneDimensionIsAdamWs) {
  const ParameterRole roles[] = {ParameterRole::kPackedQkv,     ParameterRole::kQuery,
                                 ParameterRole::kKey,           ParameterRole::kValue,
                                 ParameterRole::kMlp,           ParameterRole::kExpert,
                                 ParameterRole::kAttentionGate, ParameterRole::kAttentionOutput};
  for (const ParameterRole role : roles) {
    EXPECT_TRUE(IsHiddenMatrix(role)) << Name(role);
    const auto vector = Assign({OnMeta("v", role, {24})}, Granularity::kWholeMatrix);
    ASSERT_TRUE(vector.ok()) << vector.status();
    EXPECT_EQ((*vector)[0].assignment.group, OptimizerGroup::kAdamW) << Name(role);
    const auto matrix = Assign({OnMeta("m", role, {24, 1})}, Granularity::kWholeMatrix);
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    EXPECT_EQ((*matrix)[0].assignment.group, OptimizerGroup::kMuon) << Name(role);
  }
}

TEST(AssignGroups, BlocksFollowTheGranularity) {
  const std::vector<Parameter> parameters = {PackedOnMeta("wqkv", 8, 2)};
  const auto blocks = [&](Granularity granularity, std::int64_t head_group_size = 0) {
    return Assign(parameters, granularity, head_group_size)->front().assignment;
  };
  EXPECT_EQ(blocks(Granularity::kHead).blocks, 12);
  EXPECT_EQ(blocks(Granularity::kKvGroup).blocks, 2);
  EXPECT_EQ(blocks(Granularity::kProjection).blocks, 3);
  EXPECT_EQ(blocks(Granularity::kHeadGroup, 2).blocks, 6);
  EXPECT_EQ(blocks(Granularity::kHeadGroup, 2).group, OptimizerGroup::kMuonPerHead);
  EXPECT_EQ(blocks(Granularity::kWholeMatrix).blocks, 1);
  EXPECT_EQ(blocks(Granularity::kWholeMatrix).group, OptimizerGroup::kMuon);
}

TEST(AssignGroups, ExpertsAreMatricesAtEveryGranularity) {
  const std::vector<Parameter> parameters = {
      PackedOnMeta("wqkv", 8, 2), OnMeta("experts", ParameterRole::kExpert, {3, 10, 20})};
  for (const Granularity granularity :
       {Granularity::kHead, Granularity::kKvGroup, Granularity::kWholeMatrix}) {
    const auto grouped = Assign(parameters, granularity);
    ASSERT_TRUE(grouped.ok()) << grouped.status();
    const HeadBlocks& blocks = *(*grouped)[1].blocks;
    ASSERT_EQ(blocks.size(), 3);
    for (std::int64_t e = 0; e < 3; ++e) {
      EXPECT_EQ(blocks.blocks()[e].ranges, (std::vector<IndexRange>{{10 * e, 10}}));
    }
    EXPECT_EQ((*grouped)[1].assignment.group, OptimizerGroup::kMuon);
  }
}

TEST(AssignGroups, ColumnBlocksAreCheckedAgainstTheColumns) {
  Parameter wo = OnMeta("wo", ParameterRole::kAttentionOutput, {16, 24});
  std::vector<HeadBlock> heads(4);
  for (std::int64_t h = 0; h < 4; ++h) heads[h] = {{{6 * h, 6}}, HeadRole::kQuery, h, h};
  wo.head_blocks = *HeadBlocks::Create(24, heads, BlockAxis::kColumns);
  EXPECT_EQ(Assign({wo}, Granularity::kHead)->front().assignment.blocks, 4);
  wo.value = Tensor::Empty({16, 23}, DType::kF32, Device::kMeta);
  EXPECT_EQ(Error({wo}), "parameter wo has 23 columns, but its head blocks cover 24");
}

TEST(AssignGroups, ErrorsNameTheParameterAndWhatIsWrong) {
  const Parameter wqkv = PackedOnMeta("wqkv", 6, 2);
  EXPECT_EQ(Error({wqkv, OnMeta("", ParameterRole::kNorm, {4})}), "parameter 1 (norm) has no name");
  EXPECT_EQ(Error({wqkv, OnMeta("wqkv", ParameterRole::kNorm, {4})}),
            "two parameters are named wqkv");
  EXPECT_EQ(Error({wqkv, OnMeta("n", ParameterRole::kNorm, {0})}),
            "parameter n has no elements: shape [0]");
  EXPECT_EQ(Error({Parameter{.name = "nothing", .value = {}, .gradient = {}}}),
            "parameter nothing has no elements");
  EXPECT_EQ(
      Error({wqkv, OnMeta("w", ParameterRole::kMlp, {2, 3, 4})}),
      "parameter w (mlp) must be a matrix [out_features, in_features], found shape [2, 3, 4]");

  Parameter wrong = wqkv;
  wrong.value = Tensor::Empty({41, 16}, DType::kF32, Device::kMeta);
  EXPECT_EQ(Error({wrong}), "parameter wqkv has 41 rows, but its head blocks cover 40");

  Parameter embedding = OnMeta("embedding", ParameterRole::kEmbedding, {40, 16});
  embedding.head_blocks = wqkv.head_blocks;
  EXPECT_EQ(Error({embedding}),
            "parameter embedding (embedding, shape [40, 16]) declares head blocks, but is not a "
            "matrix that Muon updates");
  Parameter experts = OnMeta("experts", ParameterRole::kExpert, {40, 2, 16});
  experts.head_blocks = wqkv.head_blocks;
  EXPECT_EQ(Error({experts}),
            "parameter experts is a batch of experts and cannot declare head blocks");
}

TEST(AssignGroups, GranularityMustFitTheBlocks) {
  const Parameter wqkv = PackedOnMeta("wqkv", 6, 2);
  EXPECT_EQ(Error({wqkv}, Granularity::kHeadGroup, 4),
            "parameter wqkv: head_group_size 4 does not divide the 6 query heads");
  EXPECT_EQ(Error({wqkv}, Granularity::kHeadGroup, 3),
            "parameter wqkv: head_group_size 3 does not divide the 2 key heads");
  Parameter coarse = wqkv;
  coarse.head_blocks = *wqkv.head_blocks->Coarsen(Granularity::kProjection);
  EXPECT_EQ(Error({coarse}, Granularity::kHead),
            "parameter wqkv: blocks of granularity projection cannot be regrouped as head; coarsen "
            "the per-head blocks "
            "instead");
}

TEST(AssignGroups, PerHeadWithoutHeadBlocksIsAnError) {
  const std::vector<Parameter> parameters = {OnMeta("w", ParameterRole::kMlp, {4, 4}),
                                             OnMeta("n", ParameterRole::kNorm, {4})};
  EXPECT_EQ(Error(parameters, Granularity::kHead),
            "granularity head was asked for, but none of the 2 parameters declares head blocks; "
            "whole_matrix is what such a model can have");
  EXPECT_TRUE(Assign(parameters, Granularity::kWholeMatrix).ok());
}

}  // namespace
}  // namespace headwise
