// An outside checkpoint's weights, from names, shapes and config.json to updates.
#include "optim/checkpoint_muon.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/common/thread_pool.h"
#include "kernels/muon_step/muon_step.h"

namespace headwise {
namespace {

using testing::HasSubstr;

constexpr char kLlama[] = R"({"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48, "vocab_size": 11,
    "num_hidden_layers": 1})";
const std::vector<WeightShape> kLlamaWeights = {
    {"model.embed_tokens.weight", {11, 32}},
    {"model.layers.0.self_attn.q_proj.weight", {32, 32}},
    {"model.layers.0.self_attn.k_proj.weight", {16, 32}},
    {"model.layers.0.self_attn.v_proj.weight", {16, 32}},
    {"model.layers.0.self_attn.o_proj.weight", {32, 32}},
    {"model.layers.0.mlp.gate_proj.weight", {48, 32}},
    {"model.layers.0.mlp.up_proj.weight", {48, 32}},
    {"model.layers.0.mlp.down_proj.weight", {32, 48}},
    {"model.layers.0.input_layernorm.weight", {32}},
    {"model.layers.0.post_attention_layernorm.weight", {32}},
    {"model.norm.weight", {32}},
    {"lm_head.weight", {11, 32}},
};

std::vector<float> Numbers(std::int64_t n, std::uint32_t seed) {
  std::vector<float> values(n);
  for (float& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-31f;
  }
  return values;
}

TEST(MuonPlan, GroupsAndBlocks) {
  const MuonPlan plan = *MuonPlan::Create(kLlama, kLlamaWeights, {});
  EXPECT_EQ(plan.model_type(), "llama");
  std::map<std::string, std::int64_t> blocks;
  for (const PlannedWeight& weight : plan.weights()) {
    EXPECT_EQ(weight.blocks.has_value(), weight.group != OptimizerGroup::kAdamW);
    blocks[weight.layout.name] = weight.blocks.has_value() ? weight.blocks->size() : 0;
  }
  EXPECT_EQ(blocks["model.layers.0.self_attn.q_proj.weight"], 4);
  EXPECT_EQ(blocks["model.layers.0.self_attn.k_proj.weight"], 2);
  EXPECT_EQ(blocks["model.layers.0.self_attn.v_proj.weight"], 2);
  EXPECT_EQ(blocks["model.layers.0.self_attn.o_proj.weight"], 1);
  EXPECT_EQ(blocks["model.layers.0.mlp.down_proj.weight"], 1);
  EXPECT_EQ(blocks["model.embed_tokens.weight"], 0);
  EXPECT_EQ(blocks["lm_head.weight"], 0);
  EXPECT_EQ(blocks["model.norm.weight"], 0);
}

// The update of each weight is the reference's on the blocks that one would write by hand.
TEST(MuonPlan, UpdatesAreThoseOfTheBlocks) {
  const MuonPlan plan = *MuonPlan::Create(kLlama, kLlamaWeights, {});
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  std::vector<float> value = Numbers(32 * 32, 1), expected = value, momentum(32 * 32);
  const std::vector<float> gradient = Numbers(32 * 32, 2);
  absl::StatusOr<Muon> muon =
      Muon::Create({.learning_rate = 0.1}, {*plan.Parameter(name, value.data(), gradient.data())});
  ASSERT_TRUE(muon.ok()) << muon.status();
  ThreadPool pool(1);
  muon->Step(pool);

  const HeadBlocks heads = *HeadBlocks::Separate(HeadRole::kQuery, 4, 8, 2);
  const MuonWeight<float> weight = {.weight = {expected.data(), 32, 32},
                                    .momentum = {momentum.data(), 32, 32},
                                    .gradient = {gradient.data(), 32, 32},
                                    .blocks = &heads};
  ASSERT_TRUE(MuonStepReference<float>({.learning_rate = 0.1}, {&weight, 1}).ok());
  EXPECT_EQ(value, expected);
}

// GPT-2 stores [in, out]: heads on the columns, the scale of the logical shape.
TEST(MuonPlan, TransposedStorageKeepsTheLogicalScale) {
  constexpr char kGpt2[] =
      R"({"model_type": "gpt2", "n_embd": 16, "n_head": 4, "n_layer": 1, "vocab_size": 7})";
  const MuonPlan plan = *MuonPlan::Create(kGpt2,
                                          {{"h.0.attn.c_attn.weight", {16, 48}},
                                           {"h.0.attn.c_attn.bias", {48}},
                                           {"h.0.attn.c_proj.weight", {16, 16}},
                                           {"h.0.attn.c_proj.bias", {16}}},
                                          {.granularity = Granularity::kProjection});
  const PlannedWeight& weight = plan.weights()[0];
  ASSERT_TRUE(weight.blocks.has_value()) << weight.layout.explanation;
  EXPECT_EQ(weight.blocks->axis(), BlockAxis::kColumns);
  EXPECT_EQ(weight.blocks->size(), 3);
  EXPECT_TRUE(weight.layout.transposed_storage);
  float value[1], gradient[1];
  EXPECT_TRUE(plan.Parameter("h.0.attn.c_attn.weight", value, gradient)->transposed_storage);
}

TEST(MuonPlan, Errors) {
  const auto error = [](absl::string_view config, const MuonPlanOptions& options) {
    return MuonPlan::Create(config, kLlamaWeights, options).status();
  };
  EXPECT_EQ(error("[]", {}).code(), absl::StatusCode::kInvalidArgument);
  const absl::Status unknown = error(R"({"model_type": "nobody_knows"})", {});
  EXPECT_EQ(unknown.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("unknown_architecture"));
  EXPECT_TRUE(
      error(R"({"model_type": "nobody_knows"})", {.granularity = Granularity::kWholeMatrix}).ok());
  const absl::Status groups =
      error(kLlama, {.granularity = Granularity::kHeadGroup, .head_group_size = 3});
  EXPECT_EQ(groups.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(groups.message()), HasSubstr("q_proj"));

  const MuonPlan plan = *MuonPlan::Create(kLlama, kLlamaWeights, {});
  float value[1], gradient[1];
  const absl::Status misspelt =
      plan.Parameter("model.layers.0.self_attn.q_porj.weight", value, gradient).status();
  EXPECT_EQ(misspelt.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(misspelt.message()), HasSubstr("self_attn.q_proj.weight"));
  const absl::Status norm = plan.Parameter("model.norm.weight", value, gradient).status();
  EXPECT_EQ(norm.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(norm.message()), HasSubstr("not Muon's: norm"));
}

}  // namespace
}  // namespace headwise
