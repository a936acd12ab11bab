// Every architecture of docs/head_blocks.md, at published sizes, small and random: each weight is
// cut as expected or declined for the expected reason, and blocks tile their axis exactly.
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "optim/architectures/resolve.h"
#include "optim/architectures/testing/checkpoints.h"

namespace headwise {
namespace {

void ExpectBlocks(const ExpectedWeight& expected, const WeightLayout& found) {
  ASSERT_TRUE(found.blocks.has_value())
      << "declined: " << Name(*found.declined) << ": " << found.explanation;
  EXPECT_EQ(found.layout, expected.layout);
  EXPECT_EQ(found.blocks->axis(), expected.axis);
  EXPECT_EQ(found.transposed_storage, expected.transposed_storage);
  EXPECT_FALSE(found.explanation.empty());
  std::map<HeadRole, std::pair<std::int64_t, std::set<std::int64_t>>> heads;
  std::int64_t next = 0;
  for (const HeadBlock& block : found.blocks->blocks()) {
    ASSERT_EQ(block.ranges.size(), 1u);
    EXPECT_EQ(block.ranges[0].begin, next);
    next += block.size();
    ++heads[block.role].first;
    heads[block.role].second.insert(block.size());
  }
  EXPECT_EQ(next, expected.weight.shape[expected.axis == BlockAxis::kRows ? 0 : 1]);
  EXPECT_EQ(heads.size(), expected.heads.size());
  for (const ExpectedHeads& role : expected.heads) {
    EXPECT_EQ(heads[role.role].first, role.heads) << Name(role.role);
    EXPECT_THAT(heads[role.role].second, ::testing::ElementsAre(role.size)) << Name(role.role);
  }
}

void ExpectLayout(const TestCheckpoint& checkpoint) {
  SCOPED_TRACE(checkpoint.name + "\n" + checkpoint.config);
  const absl::StatusOr<CheckpointLayout> layout =
      ResolveHeadBlocks(checkpoint.config, checkpoint.Shapes());
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->weights.size(), checkpoint.weights.size());
  for (std::size_t i = 0; i < checkpoint.weights.size(); ++i) {
    const ExpectedWeight& expected = checkpoint.weights[i];
    const WeightLayout& found = layout->weights[i];
    SCOPED_TRACE(expected.weight.name + " " + ToString(expected.weight.shape));
    EXPECT_EQ(found.name, expected.weight.name);
    EXPECT_EQ(found.blocks.has_value(), !found.declined.has_value());
    if (expected.declined.has_value()) {
      ASSERT_TRUE(found.declined.has_value()) << found.layout;
      EXPECT_STREQ(Name(*found.declined), Name(*expected.declined)) << found.explanation;
      EXPECT_FALSE(found.explanation.empty());
    } else {
      ExpectBlocks(expected, found);
    }
  }
}

TEST(ArchitectureTable, PublishedAndSmallCheckpoints) {
  for (const TestCheckpoint& checkpoint : AllTestCheckpoints()) ExpectLayout(checkpoint);
}

TEST(ArchitectureTable, RandomGeometries) {
  std::mt19937 rng(20261130);
  for (const std::vector<TestFamily>& families : {TestFamilies(), TestKin()}) {
    for (const TestFamily& family : families) {
      for (int trial = 0; trial < 40; ++trial) {
        ExpectLayout(Make(family, RandomNumbers(rng), "random"));
        if (HasFailure()) return;
      }
    }
  }
}

// The numbers that the table of docs/head_blocks.md gives.
TEST(ArchitectureTable, BlockCountsOfWellKnownCheckpoints) {
  const auto blocks = [](const std::string& family, std::size_t published) {
    const TestFamily& f = FindTestFamily(family);
    const TestCheckpoint checkpoint = Make(f, f.published[published], "published");
    const CheckpointLayout layout = *ResolveHeadBlocks(checkpoint.config, checkpoint.Shapes());
    return layout.weights[0].blocks->size();
  };
  EXPECT_EQ(blocks("falcon, new_decoder_architecture", 0), 144);
  EXPECT_EQ(blocks("falcon, new_decoder_architecture", 1), 248);
  EXPECT_EQ(blocks("falcon, multi_query", 0), 73);
  EXPECT_EQ(blocks("bloom", 0), 3 * 112);
  EXPECT_EQ(blocks("gpt_oss", 0), 64);
  EXPECT_EQ(blocks("qwen3_next", 0), 16 * (2 + 2 * 2));
}

// Every rule is tried above: on a checkpoint of its model_type, or of a composite that names it or
// implies it for a part.
TEST(ArchitectureTable, EveryRuleHasACheckpoint) {
  std::set<std::string> tested;
  for (const std::vector<TestFamily>& families : {TestFamilies(), TestKin()}) {
    for (const TestFamily& family : families) {
      tested.insert(family.model_type);
      const nlohmann::json config = nlohmann::json::parse(Make(family, Numbers(), "small").config);
      for (const nlohmann::json& part : config) {
        if (part.is_object() && part.contains("model_type")) tested.insert(part["model_type"]);
      }
    }
  }
  for (const char* implied : {"kimi_k25_vision", "llama4_vision_model", "mllama_vision_model",
                              "muse_spark_vision", "qwen2_vl_vision", "qwen2_5_vl_vision",
                              "qwen3_vl_vision", "qwen3_5_vision", "qwen3_5_moe_text"}) {
    tested.insert(implied);
  }
  EXPECT_THAT(tested, ::testing::ElementsAreArray(KnownArchitectures()));
}

}  // namespace
}  // namespace headwise
