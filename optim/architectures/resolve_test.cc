// The public face: options, summary, errors; and how a configuration is read.
#include "optim/architectures/resolve.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "optim/architectures/testing/checkpoints.h"

namespace headwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kLlama[] =
    R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2})";

std::vector<WeightShape> LlamaWeights() {
  return {{"model.embed_tokens.weight", {100, 64}},
          {"model.layers.0.self_attn.q_proj.weight", {64, 64}},
          {"model.layers.0.self_attn.k_proj.weight", {32, 64}},
          {"model.layers.0.self_attn.v_proj.weight", {32, 64}},
          {"model.layers.0.self_attn.o_proj.weight", {64, 64}},
          {"model.layers.0.mlp.down_proj.weight", {64, 128}},
          {"model.layers.0.mlp.gate.weight", {8, 64}},
          {"model.layers.0.mlp.experts.0.up_proj.weight", {128, 64}},
          {"model.layers.0.input_layernorm.weight", {64}},
          {"model.layers.0.self_attn.q_proj.bias", {64}},
          {"lm_head.weight", {100, 64}},
          {"something.else", {3, 3}}};
}

TEST(ResolveHeadBlocks, EveryWeightHasARoleItsNameTells) {
  const CheckpointLayout layout = *ResolveHeadBlocks(kLlama, LlamaWeights());
  EXPECT_EQ(layout.model_type, "llama");
  const std::vector<std::optional<ParameterRole>> expected = {
      ParameterRole::kEmbedding, ParameterRole::kQuery,           ParameterRole::kKey,
      ParameterRole::kValue,     ParameterRole::kAttentionOutput, ParameterRole::kMlp,
      ParameterRole::kRouter,    ParameterRole::kExpert,          ParameterRole::kNorm,
      ParameterRole::kBias,      ParameterRole::kOutputHead,      std::nullopt};
  ASSERT_EQ(layout.weights.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(layout.weights[i].role, expected[i]) << layout.weights[i].name;
  }
}

TEST(ResolveHeadBlocks, SummaryCountsBlocksAndReasons) {
  const LayoutSummary summary = Summarize(*ResolveHeadBlocks(kLlama, LlamaWeights()));
  EXPECT_EQ(summary.weights, 12);
  EXPECT_EQ(summary.blocked, 3);
  EXPECT_EQ(summary.blocks, 4 + 2 + 2);
  EXPECT_EQ(summary.declined,
            (std::map<DeclineReason, std::int64_t>{{DeclineReason::kNotAttention, 7},
                                                   {DeclineReason::kNotTwoDimensional, 2}}));
}

// A checkpoint of the bare model has no "model." before its names.
TEST(ResolveHeadBlocks, TheBasePrefixIsOptional) {
  const CheckpointLayout layout =
      *ResolveHeadBlocks(kLlama, {{{"layers.0.self_attn.q_proj.weight", {64, 64}}}});
  EXPECT_EQ(layout.weights[0].blocks->size(), 4);
}

TEST(ResolveHeadBlocks, ExplanationsNameTheFields) {
  const CheckpointLayout layout = *ResolveHeadBlocks(kLlama, LlamaWeights());
  EXPECT_EQ(layout.weights[2].explanation,
            "2 key of 16 rows; hidden_size=64, num_attention_heads=4, num_key_value_heads=2");
  const CheckpointLayout defaults = *ResolveHeadBlocks(
      R"({"model_type": "gemma2"})", {{{"layers.0.self_attn.q_proj.weight", {2048, 2304}}}});
  EXPECT_EQ(defaults.weights[0].explanation,
            "8 query of 256 rows; hidden_size=2304 by default, num_attention_heads=8 by default, "
            "num_key_value_heads=4 by default, head_dim=256 by default");
}

TEST(ResolveHeadBlocks, OutputColumnsAreOffUnlessAskedFor) {
  EXPECT_THAT((*ResolveHeadBlocks(kLlama, LlamaWeights())).weights[4].explanation,
              HasSubstr("its heads lie on the columns"));
  const CheckpointLayout layout =
      *ResolveHeadBlocks(kLlama, LlamaWeights(), {.output_columns = true});
  ASSERT_TRUE(layout.weights[4].blocks.has_value());
  EXPECT_EQ(layout.weights[4].blocks->axis(), BlockAxis::kColumns);
  EXPECT_EQ(layout.weights[4].blocks->size(), 4);
  EXPECT_FALSE(layout.weights[4].transposed_storage);
}

TEST(ResolveHeadBlocks, LatentHeadsAreWholeOrSplit) {
  const TestCheckpoint checkpoint =
      Make(FindTestFamily("deepseek_v3"), Numbers(), "small");  // 8 heads, nope 6, rope 2, value 5
  const auto blocks = [&](MlaHeads heads, const std::string& name) {
    const CheckpointLayout layout =
        *ResolveHeadBlocks(checkpoint.config, checkpoint.Shapes(), {.mla_heads = heads});
    for (const WeightLayout& weight : layout.weights) {
      if (weight.name == "model.layers.0.self_attn." + name) return weight.blocks->blocks();
    }
    ADD_FAILURE() << name;
    return std::vector<HeadBlock>();
  };
  EXPECT_EQ(blocks(MlaHeads::kWhole, "q_b_proj.weight").size(), 8u);
  EXPECT_EQ(blocks(MlaHeads::kWhole, "kv_b_proj.weight")[1].role, HeadRole::kKeyValue);
  const std::vector<HeadBlock> query = blocks(MlaHeads::kSplit, "q_b_proj.weight");
  ASSERT_EQ(query.size(), 16u);
  EXPECT_EQ(query[3].role, HeadRole::kQueryRope);
  EXPECT_EQ(query[3].ranges, (std::vector<IndexRange>{{14, 2}}));
  const std::vector<HeadBlock> key_value = blocks(MlaHeads::kSplit, "kv_b_proj.weight");
  EXPECT_EQ(key_value[2].role, HeadRole::kKeyNope);
  EXPECT_EQ(key_value[3].role, HeadRole::kValue);
  EXPECT_EQ(key_value[3].ranges, (std::vector<IndexRange>{{17, 5}}));
}

TEST(RequireHeadBlocks, PerHeadWithoutHeadsIsAnError) {
  const CheckpointLayout layout = *ResolveHeadBlocks(R"({"model_type": "surely_new"})",
                                                     {{{"w", {4, 4}}, {"v", {4, 4}}, {"b", {4}}}});
  EXPECT_TRUE(RequireHeadBlocks(layout, Granularity::kWholeMatrix).ok());
  const absl::Status status = RequireHeadBlocks(layout, Granularity::kHead);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "granularity head was asked for, but none of the 3 weights has head blocks "
            "(1 not_two_dimensional, 2 unknown_architecture, model_type 'surely_new'); "
            "whole_matrix is what such a model can have");
  EXPECT_TRUE(
      RequireHeadBlocks(*ResolveHeadBlocks(kLlama, LlamaWeights()), Granularity::kKvGroup).ok());
}

TEST(ResolveHeadBlocks, ErrorsOfTheCallerAreErrors) {
  const auto error = [](const std::string& config, const std::vector<WeightShape>& weights) {
    const absl::Status status = ResolveHeadBlocks(config, weights).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error("{\"model_type\": ", {}),
              AllOf(HasSubstr("config.json: not valid JSON: parse error at line 1, column 16"),
                    HasSubstr("end of input")));
  EXPECT_THAT(error("{\"hidden_size\": 1e99999}", {}), HasSubstr("number overflow"));
  EXPECT_THAT(error("", {}), HasSubstr("not valid JSON"));
  EXPECT_THAT(error("[1]", {}), HasSubstr("expected a JSON object, found array"));
  EXPECT_THAT(error("{}", {{"", {2, 2}}}), HasSubstr("a weight has no name"));
  EXPECT_THAT(error("{}", {{"w", {2, 2}}, {"w", {2, 2}}}), HasSubstr("two weights are named 'w'"));
  EXPECT_THAT(error("{}", {{"w", {2, -2}}}),
              HasSubstr("weight 'w' has an impossible shape [2, -2]"));
  EXPECT_THAT(error("{}", {{"w", {std::int64_t{1} << 40, std::int64_t{1} << 40}}}),
              HasSubstr("impossible shape"));
  EXPECT_THAT(error("{\"a\": 'b'}", {}), HasSubstr("last read: '\"a\": ''"));
  EXPECT_THAT(error(std::string(std::size_t{65} << 20, ' '), {}), HasSubstr("is this a config"));
}

// Python writes floats that JSON does not have, and escapes may hide quotes.
TEST(ResolveHeadBlocks, ReadsWhatPythonWrites) {
  const std::string config =
      R"({"model_type": "llama", "time_step_limit": [0.0, Infinity], "nan": NaN, "low": -Infinity,
          "text": "a \" Infinity \\", "hidden_size": 64, "num_attention_heads": 4,
          "num_attention_heads": 2, "head_dim": NaN})";
  const absl::StatusOr<CheckpointLayout> layout =
      ResolveHeadBlocks(config, {{{"model.layers.0.self_attn.q_proj.weight", {64, 64}}}});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->weights[0].blocks->size(), 2);  // the last of a repeated key
  EXPECT_FALSE(ResolveHeadBlocks(R"({"a": Infinit})", {}).ok());
}

TEST(ResolveHeadBlocks, EmptyDimensionsAndScalarsAreDeclined) {
  const CheckpointLayout layout =
      *ResolveHeadBlocks(kLlama, {{{"model.layers.0.self_attn.q_proj.weight", {0, 64}},
                                   {"model.layers.0.self_attn.k_proj.weight", {}}}});
  EXPECT_STREQ(Name(*layout.weights[0].declined), "width_mismatch");
  EXPECT_STREQ(Name(*layout.weights[1].declined), "not_two_dimensional");
}

TEST(KnownArchitectures, AreSortedAndMany) {
  const std::vector<std::string> known = KnownArchitectures();
  EXPECT_GT(known.size(), 100u);
  EXPECT_TRUE(std::is_sorted(known.begin(), known.end()));
}

}  // namespace
}  // namespace headwise
