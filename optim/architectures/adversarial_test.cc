// What must not fool a rule: totals that coincide with another geometry, fields that contradict each
// other or the module, missing and null fields, padding, shards, transposed storage, parts of a
// model with another section, modules that a rule does not describe.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "optim/architectures/resolve.h"
#include "optim/architectures/testing/checkpoints.h"

namespace headwise {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

CheckpointLayout Resolve(const json& config, const std::vector<WeightShape>& weights) {
  absl::StatusOr<CheckpointLayout> layout = ResolveHeadBlocks(config.dump(), weights);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

void ExpectDeclined(const WeightLayout& weight, DeclineReason reason, const std::string& why) {
  ASSERT_TRUE(weight.declined.has_value()) << weight.name << ": " << weight.explanation;
  EXPECT_STREQ(Name(*weight.declined), Name(reason)) << weight.name << ": " << weight.explanation;
  EXPECT_THAT(weight.explanation, HasSubstr(why)) << weight.name;
}

constexpr char kQ[] = "model.layers.0.self_attn.q_proj.weight";
constexpr char kK[] = "model.layers.0.self_attn.k_proj.weight";
constexpr char kV[] = "model.layers.0.self_attn.v_proj.weight";

json Llama(std::int64_t width, std::int64_t heads, std::int64_t kv_heads) {
  return {{"model_type", "llama"},
          {"hidden_size", width},
          {"num_attention_heads", heads},
          {"num_key_value_heads", kv_heads}};
}

// 8 heads of 32 have as many rows as 4 of 64, but not their boundaries.
TEST(Adversarial, TheFieldsDecideBetweenGeometriesOfTheSameTotal) {
  const std::vector<WeightShape> weights = {{kQ, {256, 256}}, {kK, {256, 256}}};
  EXPECT_EQ(Resolve(Llama(256, 8, 8), weights).weights[0].blocks->blocks()[1].ranges[0].begin, 32);
  EXPECT_EQ(Resolve(Llama(256, 4, 4), weights).weights[0].blocks->blocks()[1].ranges[0].begin, 64);
  json config = Llama(256, 8, 8);
  config["head_dim"] = 64;  // 8 of 64 is 512
  const CheckpointLayout layout = Resolve(config, weights);
  ExpectDeclined(layout.weights[0], DeclineReason::kWidthMismatch,
                 "expected [512, 256] from hidden_size=256, num_attention_heads=8, "
                 "num_key_value_heads=8, head_dim=64, found [256, 256]: one of 2 shards?");
}

// A projection that fits by accident is not cut when its siblings do not fit.
TEST(Adversarial, OneMisfitDeclinesTheWholeModule) {
  const CheckpointLayout layout =
      Resolve(Llama(256, 8, 2), {{kQ, {250, 256}}, {kK, {64, 256}}, {kV, {64, 256}}});
  ExpectDeclined(layout.weights[0], DeclineReason::kWidthMismatch, "[256, 256]");
  ExpectDeclined(layout.weights[1], DeclineReason::kAmbiguous, kQ);
  ExpectDeclined(layout.weights[2], DeclineReason::kAmbiguous, "its own width fits");
}

TEST(Adversarial, BothDimensionsMustFit) {
  const CheckpointLayout layout = Resolve(Llama(256, 8, 8), {{kQ, {256, 128}}});
  ExpectDeclined(layout.weights[0], DeclineReason::kWidthMismatch, "expected [256, 256]");
}

TEST(Adversarial, PaddedRowsAndShardsAreNamed) {
  const CheckpointLayout padded = Resolve(Llama(256, 8, 2), {{kQ, {272, 256}}, {kK, {64, 256}}});
  ExpectDeclined(padded.weights[0], DeclineReason::kWidthMismatch, ": 16 too many; padded?");
  const CheckpointLayout shard = Resolve(Llama(256, 8, 2), {{kQ, {64, 256}}});
  ExpectDeclined(shard.weights[0], DeclineReason::kWidthMismatch, ": one of 4 shards?");
}

TEST(Adversarial, TransposedStorageIsNoLayout) {
  json config = Llama(96, 8, 2);
  config["head_dim"] = 16;
  const CheckpointLayout layout = Resolve(config, {{kQ, {96, 128}}});
  ExpectDeclined(layout.weights[0], DeclineReason::kTransposedStorage, "stored transposed");
  // GPT-2's own storage under the name of a Linear and the other way round.
  const json bigcode = {
      {"model_type", "gpt_bigcode"}, {"n_embd", 64}, {"n_head", 4}, {"multi_query", false}};
  ExpectDeclined(Resolve(bigcode, {{"transformer.h.0.attn.c_attn.weight", {64, 192}}}).weights[0],
                 DeclineReason::kTransposedStorage, "stored transposed");
  const json gpt2 = {{"model_type", "gpt2"}, {"n_embd", 64}, {"n_head", 4}};
  ExpectDeclined(Resolve(gpt2, {{"transformer.h.0.attn.c_attn.weight", {192, 64}}}).weights[0],
                 DeclineReason::kTransposedStorage, "stored transposed");
}

TEST(Adversarial, MissingNullAndImpossibleFields) {
  const auto reason = [](json config, const std::string& field, const json& value) {
    if (value.is_discarded()) {
      config.erase(field);
    } else {
      config[field] = value;
    }
    return Resolve(config, {{"model.layers.0.attention.wqkv.weight", {384, 256}}}).weights[0];
  };
  const json internlm = {{"model_type", "internlm2"},
                         {"hidden_size", 256},
                         {"num_attention_heads", 8},
                         {"num_key_value_heads", 2}};
  EXPECT_TRUE(reason(internlm, "bias", false).blocks.has_value());
  const json absent(json::value_t::discarded);
  ExpectDeclined(reason(internlm, "hidden_size", absent), DeclineReason::kNoGeometry,
                 "the configuration has no hidden_size");
  ExpectDeclined(reason(internlm, "num_attention_heads", nullptr), DeclineReason::kNoGeometry,
                 "num_attention_heads is null");
  ExpectDeclined(reason(internlm, "num_attention_heads", 0), DeclineReason::kNoGeometry,
                 "must be a positive integer, found 0");
  ExpectDeclined(reason(internlm, "num_attention_heads", -8), DeclineReason::kNoGeometry,
                 "found -8");
  ExpectDeclined(reason(internlm, "num_attention_heads", 8.0), DeclineReason::kNoGeometry,
                 "found 8.0");
  ExpectDeclined(reason(internlm, "num_attention_heads", "8"), DeclineReason::kNoGeometry,
                 "must be a positive integer, found \"8\"");
  ExpectDeclined(reason(internlm, "num_attention_heads", 7), DeclineReason::kNoGeometry,
                 "num_attention_heads=7 does not divide hidden_size=256");
  ExpectDeclined(reason(internlm, "num_key_value_heads", 3), DeclineReason::kNoGeometry,
                 "kv_heads must divide query_heads");
  ExpectDeclined(reason(internlm, "num_attention_heads", std::int64_t{1} << 62),
                 DeclineReason::kNoGeometry, "must be a positive integer of at most 2147483648");
  // Absurd, but a number: nothing is allocated for two thousand million heads.
  json huge = internlm;
  huge["hidden_size"] = huge["num_attention_heads"] = huge["num_key_value_heads"] = std::int64_t{1}
                                                                                    << 31;
  ExpectDeclined(reason(huge, "bias", false), DeclineReason::kNoGeometry, "more than 65536 heads");
}

// A class default that is a number cannot be null; one that is derived can.
TEST(Adversarial, HeadDimMayBeNullOnlyWhereItIsDerived) {
  json config = Llama(256, 8, 8);
  config["head_dim"] = nullptr;
  EXPECT_TRUE(Resolve(config, {{kQ, {256, 256}}}).weights[0].blocks.has_value());
  config["model_type"] = "gemma";
  ExpectDeclined(Resolve(config, {{kQ, {256, 256}}}).weights[0], DeclineReason::kNoGeometry,
                 "head_dim is null");
  config.erase("head_dim");  // the default of its class, 256
  EXPECT_EQ(Resolve(config, {{kQ, {2048, 256}}}).weights[0].blocks->size(), 8);
}

// These modules never read head_dim, so a stray one changes nothing.
TEST(Adversarial, AFieldThatTheModuleDoesNotReadIsNotRead) {
  json config = Llama(256, 8, 8);
  config["model_type"] = "stablelm";
  config["head_dim"] = 64;
  EXPECT_EQ(Resolve(config, {{kQ, {256, 256}}}).weights[0].blocks->size(), 8);
}

TEST(Adversarial, MultiQueryFlagsThatContradictTheHeadCounts) {
  const char* const name = "transformer.h.0.self_attention.query_key_value.weight";
  json falcon = {{"model_type", "falcon"},
                 {"hidden_size", 256},
                 {"num_attention_heads", 8},
                 {"num_kv_heads", 8},
                 {"multi_query", true}};
  // As Falcon-7B: multi_query wins, and the shape confirms it.
  EXPECT_EQ(Resolve(falcon, {{name, {10 * 32, 256}}}).weights[0].layout, "sectioned");
  ExpectDeclined(Resolve(falcon, {{name, {24 * 32, 256}}}).weights[0],
                 DeclineReason::kWidthMismatch, "multi_query=true");
  falcon["multi_query"] = false;
  falcon["num_kv_heads"] = 2;
  ExpectDeclined(Resolve(falcon, {{name, {12 * 32, 256}}}).weights[0], DeclineReason::kAmbiguous,
                 "neither new_decoder_architecture nor multi_query");
  falcon["multi_query"] = "yes";
  ExpectDeclined(Resolve(falcon, {{name, {12 * 32, 256}}}).weights[0], DeclineReason::kNoGeometry,
                 "multi_query must be true or false");
  const json bigcode = {{"model_type", "gpt_bigcode"},
                        {"n_embd", 256},
                        {"n_head", 8},
                        {"multi_query", true},
                        {"num_key_value_heads", 8}};
  ExpectDeclined(Resolve(bigcode, {{"transformer.h.0.attn.c_attn.weight", {768, 256}}}).weights[0],
                 DeclineReason::kWidthMismatch, "expected [320, 256]");
}

TEST(Adversarial, TwoNamesOfAFieldThatDisagree) {
  const json bloom = {
      {"model_type", "bloom"}, {"hidden_size", 64}, {"n_head", 4}, {"num_attention_heads", 8}};
  ExpectDeclined(
      Resolve(bloom, {{"h.0.self_attention.query_key_value.weight", {192, 64}}}).weights[0],
      DeclineReason::kAmbiguous, "n_head is 4, but num_attention_heads, its other name, is 8");
}

TEST(Adversarial, CodeGenNeedsFourBlocks) {
  const json codegen = {{"model_type", "codegen"}, {"n_embd", 60}, {"n_head", 6}};
  ExpectDeclined(Resolve(codegen, {{"transformer.h.0.attn.qkv_proj.weight", {180, 60}}}).weights[0],
                 DeclineReason::kNoGeometry, "4 must divide the number of heads, found 6");
}

TEST(Adversarial, UnknownArchitectures) {
  const std::vector<WeightShape> weights = {{kQ, {256, 256}}, {"model.norm.weight", {256}}};
  for (const json& config : {json{{"model_type", "surely_new"}}, json::object(),
                             json{{"model_type", nullptr}}, json{{"model_type", 7}}}) {
    const CheckpointLayout layout = Resolve(config, weights);
    EXPECT_STREQ(Name(*layout.weights[0].declined), "unknown_architecture") << config;
    EXPECT_STREQ(Name(*layout.weights[1].declined), "not_two_dimensional") << config;
  }
  ExpectDeclined(Resolve({{"model_type", "surely_new"}}, weights).weights[0],
                 DeclineReason::kUnknownArchitecture, "no rule for model_type 'surely_new'");
  ExpectDeclined(Resolve(json::object(), weights).weights[0], DeclineReason::kUnknownArchitecture,
                 "names no model_type");
}

// The geometry of a linear-attention module is its owner's, also where its total is softmax
// attention's: 4 heads of 64 here, 8 of 32 there.
TEST(Adversarial, LinearAttentionUsesItsOwnersGeometryWhereTotalsCoincide) {
  const json kimi = {
      {"model_type", "kimi_linear"},
      {"hidden_size", 256},
      {"num_attention_heads", 8},
      {"num_key_value_heads", 8},
      {"head_dim", 32},
      {"linear_attn_config",
       {{"num_heads", 4}, {"head_dim", 64}, {"kda_layers", {1}}, {"full_attn_layers", {2}}}}};
  const std::vector<WeightShape> weights = {{kQ, {256, 256}},
                                            {kK, {256, 256}},
                                            {"model.layers.0.self_attn.A_log", {4}},
                                            {"model.layers.0.self_attn.b_proj.weight", {4, 256}}};
  EXPECT_EQ(Resolve(kimi, weights).weights[0].blocks->size(), 4);
  // As a Llama, whose geometry fits every shape: the module holds what no Llama's does.
  json llama = kimi;
  llama["model_type"] = "llama";
  ExpectDeclined(Resolve(llama, weights).weights[0], DeclineReason::kOwnerGeometryUnknown,
                 "the module also holds 'A_log'");
  // Layers of which nothing is said, or two things.
  json silent = kimi;
  silent["linear_attn_config"]["kda_layers"] = json::array();
  ExpectDeclined(Resolve(silent, weights).weights[0], DeclineReason::kNoGeometry,
                 "say of which kind this layer is");
  json both = kimi;
  both["linear_attn_config"]["full_attn_layers"] = {1, 2};
  ExpectDeclined(Resolve(both, weights).weights[0], DeclineReason::kAmbiguous,
                 "both hold this layer");
}

// 2 * 2 * 16 + 4 * 16 rows are also (2 + 2 * 1) heads of 32: the owner's fields decide.
TEST(Adversarial, FusedLinearProjectionMatchesTheSoftmaxTotal) {
  const json config = {{"model_type", "qwen3_5_text"},
                       {"hidden_size", 64},
                       {"num_attention_heads", 2},
                       {"num_key_value_heads", 1},
                       {"head_dim", 32},
                       {"linear_num_key_heads", 2},
                       {"linear_num_value_heads", 4},
                       {"linear_key_head_dim", 16},
                       {"linear_value_head_dim", 16}};
  const char* const name = "model.layers.0.linear_attn.in_proj_qkv.weight";
  const CheckpointLayout layout = Resolve(config, {{name, {128, 64}}});
  ASSERT_EQ(layout.weights[0].layout, "linear_sections");
  EXPECT_EQ(layout.weights[0].blocks->size(), 8);
  // Without the owner's fields there are the class's defaults, which do not confirm.
  json without = config;
  for (const char* field : {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                            "linear_value_head_dim"}) {
    without.erase(field);
  }
  ExpectDeclined(Resolve(without, {{name, {128, 64}}}).weights[0], DeclineReason::kWidthMismatch,
                 "by default");
}

// 16 heads of 64 of the vision tower are as many rows as 8 of 128 of the text model.
TEST(Adversarial, VisionTowerNeverUsesTheTextModelsGeometry) {
  const json text = {{"model_type", "mistral"},
                     {"hidden_size", 1024},
                     {"num_attention_heads", 32},
                     {"num_key_value_heads", 8},
                     {"head_dim", 128}};
  const json vision = {
      {"model_type", "clip_vision_model"}, {"hidden_size", 1024}, {"num_attention_heads", 16}};
  json config = {{"model_type", "llava"}, {"text_config", text}, {"vision_config", vision}};
  const std::string tower = "vision_tower.vision_model.encoder.layers.0.self_attn.";
  const std::vector<WeightShape> weights = {
      {tower + "k_proj.weight", {1024, 1024}},
      {tower + "v_proj.weight", {1024, 1024}},
      {"language_model.model.layers.0.self_attn.k_proj.weight", {1024, 1024}}};
  const CheckpointLayout layout = Resolve(config, weights);
  EXPECT_EQ(layout.weights[0].blocks->size(), 16);
  EXPECT_EQ(layout.weights[1].blocks->size(), 16);
  EXPECT_EQ(layout.weights[2].blocks->size(), 8);
  // With its section gone, nothing stands in for it.
  for (const json& gone : {json(nullptr), json("clip")}) {
    config["vision_config"] = gone;
    ExpectDeclined(Resolve(config, weights).weights[0], DeclineReason::kNoGeometry,
                   "vision_config is no object");
  }
  config.erase("vision_config");
  ExpectDeclined(Resolve(config, weights).weights[0], DeclineReason::kNoGeometry,
                 "vision_config is missing");
  config["text_config"] = nullptr;
  ExpectDeclined(Resolve(config, weights).weights[2], DeclineReason::kNoGeometry,
                 "text_config is no object");
  // Fields at the top are no substitute for a section, here.
  config.merge_patch(text);
  config["model_type"] = "llava";
  ExpectDeclined(Resolve(config, weights).weights[2], DeclineReason::kNoGeometry, "no object");
  // A text-only rule knows nothing about a tower.
  ExpectDeclined(Resolve(text, weights).weights[0], DeclineReason::kOwnerGeometryUnknown,
                 "the rule for mistral knows no attention module here");
  // A section of an architecture that has no rule.
  config = {{"model_type", "llava"}, {"text_config", text}, {"vision_config", vision}};
  config["vision_config"]["model_type"] = "surely_new";
  ExpectDeclined(Resolve(config, weights).weights[0], DeclineReason::kUnknownArchitecture,
                 "surely_new");
}

TEST(Adversarial, AnIndexersHeadsAreNotAttentionsEvenUnderARuleThatHasNone) {
  const TestFamily& family = FindTestFamily("deepseek_v32");
  TestCheckpoint checkpoint = Make(family, Numbers(), "small");
  json config = json::parse(checkpoint.config);
  config["model_type"] = "deepseek_v3";
  for (const WeightLayout& weight : Resolve(config, checkpoint.Shapes()).weights) {
    EXPECT_FALSE(weight.blocks.has_value()) << weight.name;
    if (weight.shape.size() == 2) {
      ExpectDeclined(weight, DeclineReason::kOwnerGeometryUnknown, "'indexer'");
    }
  }
}

TEST(Adversarial, DraftHeadsAndAdaptersAreNotTheModels) {
  const json config = {{"model_type", "qwen3_next"},
                       {"hidden_size", 64},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},
                       {"head_dim", 16}};
  const CheckpointLayout layout =
      Resolve(config, {{"mtp.layers.0.self_attn.q_proj.weight", {128, 64}},
                       {"model.layers.3.self_attn.q_proj.weight", {128, 64}},
                       {"model.layers.3.self_attn.q_proj.lora_A.weight", {8, 64}},
                       {"model.layers.3.self_attn.q_proj.weight_scale_inv", {1, 1}}});
  ExpectDeclined(layout.weights[0], DeclineReason::kOwnerGeometryUnknown, "no attention module");
  EXPECT_EQ(layout.weights[1].layout, "gated_query");
  ExpectDeclined(layout.weights[2], DeclineReason::kNotAttention, "companion of q_proj.weight");
  ExpectDeclined(layout.weights[3], DeclineReason::kNotAttention, "companion of q_proj.weight");
}

TEST(Adversarial, LayersDiffer) {
  json config = {{"model_type", "laguna"},   {"hidden_size", 64},
                 {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                 {"head_dim", 16},           {"num_attention_heads_per_layer", {4, 8}}};
  const std::vector<WeightShape> weights = {{"model.layers.0.self_attn.q_proj.weight", {64, 64}},
                                            {"model.layers.1.self_attn.q_proj.weight", {128, 64}},
                                            {"model.layers.2.self_attn.q_proj.weight", {64, 64}}};
  const CheckpointLayout layout = Resolve(config, weights);
  EXPECT_EQ(layout.weights[0].blocks->size(), 4);
  EXPECT_EQ(layout.weights[1].blocks->size(), 8);
  ExpectDeclined(layout.weights[2], DeclineReason::kNoGeometry, "says nothing about layer 2");
  config["num_attention_heads_per_layer"] = {4, "8"};
  ExpectDeclined(Resolve(config, weights).weights[1], DeclineReason::kNoGeometry,
                 "num_attention_heads_per_layer[1] must be a positive integer");
}

TEST(Adversarial, ALayersNumberIsANumber) {
  const json config = Llama(256, 8, 8);
  for (const char* layer : {"x", "", "-1", "+1", "1e3", "12345678901234567890"}) {
    const std::string name = std::string("model.layers.") + layer + ".self_attn.q_proj.weight";
    ExpectDeclined(Resolve(config, {{name, {256, 256}}}).weights[0],
                   DeclineReason::kOwnerGeometryUnknown, "no attention module here");
  }
}

// One row more or less, a shard, or rows and columns swapped: never cut, and never another reason
// than that the shape is wrong.
TEST(Adversarial, NoFamilyCutsAWrongShape) {
  std::mt19937 rng(20261202);
  for (const TestFamily& family : TestFamilies()) {
    const TestCheckpoint checkpoint = Make(family, RandomNumbers(rng), "random");
    for (std::size_t i = 0; i < checkpoint.weights.size(); ++i) {
      if (checkpoint.weights[i].declined.has_value()) continue;
      const Shape right = checkpoint.weights[i].weight.shape;
      for (const Shape& wrong : {Shape{right[0] + 1, right[1]}, Shape{right[0] - 1, right[1]},
                                 Shape{right[0], right[1] + 1}, Shape{right[0] * 2, right[1]},
                                 Shape{right[1], right[0]}}) {
        if (wrong == right) continue;
        std::vector<WeightShape> shapes = checkpoint.Shapes();
        shapes[i].shape = wrong;
        const CheckpointLayout layout = *ResolveHeadBlocks(checkpoint.config, shapes);
        const WeightLayout& weight = layout.weights[i];
        ASSERT_TRUE(weight.declined.has_value()) << checkpoint.name << " " << weight.name << " "
                                                 << ToString(wrong) << " " << checkpoint.config;
        EXPECT_TRUE(*weight.declined == DeclineReason::kWidthMismatch ||
                    *weight.declined == DeclineReason::kTransposedStorage)
            << checkpoint.name << " " << weight.name << ": " << weight.explanation;
      }
    }
  }
}

}  // namespace
}  // namespace headwise
