// Latent attention, gates, linear attention.
#include "optim/architectures/testing/builder.h"
#include "optim/architectures/testing/families.h"

namespace headwise {
namespace {

using nlohmann::json;

json LatentConfig(const std::string& model_type, const Numbers& n) {
  return {{"model_type", model_type},       {"hidden_size", n.width},
          {"num_attention_heads", n.heads}, {"num_key_value_heads", n.heads},
          {"qk_nope_head_dim", n.nope},     {"qk_rope_head_dim", n.rope},
          {"v_head_dim", n.value_dim},      {"kv_lora_rank", n.kv_rank},
          {"q_lora_rank", n.q_rank}};
}

void AddLatentKeyValue(const std::string& module, const Numbers& n, CheckpointBuilder* builder) {
  builder
      ->Whole(module + ".kv_a_proj_with_mqa.weight", {n.kv_rank + n.rope, n.width},
              DeclineReason::kLowRankDown)
      .Vector(module + ".kv_a_layernorm.weight", n.kv_rank)
      .Heads(module + ".kv_b_proj.weight", {n.heads * (n.nope + n.value_dim), n.kv_rank},
             "mla_key_value", {{HeadRole::kKeyValue, n.heads, n.nope + n.value_dim}})
      .Whole(module + ".o_proj.weight", {n.width, n.heads * n.value_dim});
}

void AddLatent(const std::string& module, const Numbers& n, CheckpointBuilder* builder) {
  builder->Whole(module + ".q_a_proj.weight", {n.q_rank, n.width}, DeclineReason::kLowRankDown)
      .Vector(module + ".q_a_layernorm.weight", n.q_rank)
      .Heads(module + ".q_b_proj.weight", {n.heads * (n.nope + n.rope), n.q_rank}, "mla_query",
             {{HeadRole::kQuery, n.heads, n.nope + n.rope}});
  AddLatentKeyValue(module, n, builder);
}

TestCheckpoint Latent(const std::string& model_type, const Numbers& n) {
  CheckpointBuilder builder(LatentConfig(model_type, n));
  AddLatent("model.layers.0.self_attn", n, &builder);
  return builder.Surroundings("model.", "model.layers.0", n.width).Done();
}

// q_lora_rank is null: one q_proj.
TestCheckpoint LatentPlainQuery(const std::string& model_type, const Numbers& n) {
  json config = LatentConfig(model_type, n);
  config["q_lora_rank"] = nullptr;
  CheckpointBuilder builder(config);
  builder.Heads("model.layers.0.self_attn.q_proj.weight", {n.heads * (n.nope + n.rope), n.width},
                "mla_query", {{HeadRole::kQuery, n.heads, n.nope + n.rope}});
  AddLatentKeyValue("model.layers.0.self_attn", n, &builder);
  return builder.Done();
}

// The indexer's wq_b is as wide as the attention's own: a geometry that confirms by accident.
TestCheckpoint LatentWithIndexer(const std::string& model_type, const Numbers& n) {
  json config = LatentConfig(model_type, n);
  config["index_n_heads"] = n.heads;
  config["index_head_dim"] = n.nope + n.rope;
  CheckpointBuilder builder(config);
  const std::string module = "model.layers.0.self_attn";
  AddLatent(module, n, &builder);
  return builder.Whole(module + ".indexer.wq_b.weight", {n.heads * (n.nope + n.rope), n.q_rank})
      .Whole(module + ".indexer.wk.weight", {n.nope + n.rope, n.width})
      .Whole(module + ".indexer.weights_proj.weight", {n.heads, n.width})
      .Vector(module + ".indexer.k_norm.weight", n.nope + n.rope)
      .Done();
}

TestCheckpoint LongCat(const std::string& model_type, const Numbers& n) {
  CheckpointBuilder builder(LatentConfig(model_type, n));
  AddLatent("model.layers.0.self_attn.0", n, &builder);
  AddLatent("model.layers.0.self_attn.1", n, &builder);
  return builder.Done();
}

json HybridConfig(const std::string& model_type, const Numbers& n) {
  return {{"model_type", model_type},
          {"hidden_size", n.width},
          {"num_attention_heads", n.heads},
          {"num_key_value_heads", n.kv_heads},
          {"head_dim", n.head_dim},
          {"linear_num_key_heads", n.linear_key_heads},
          {"linear_num_value_heads", n.linear_value_heads},
          {"linear_key_head_dim", n.linear_key_dim},
          {"linear_value_head_dim", n.linear_value_dim}};
}

void AddGatedAttention(const std::string& module, const Numbers& n, CheckpointBuilder* builder) {
  builder
      ->Heads(module + ".q_proj.weight", {2 * n.heads * n.head_dim, n.width}, "gated_query",
              {{HeadRole::kQuery, n.heads, n.head_dim}, {HeadRole::kGate, n.heads, n.head_dim}})
      .Heads(module + ".k_proj.weight", {n.kv_heads * n.head_dim, n.width}, "separate",
             {{HeadRole::kKey, n.kv_heads, n.head_dim}})
      .Heads(module + ".v_proj.weight", {n.kv_heads * n.head_dim, n.width}, "separate",
             {{HeadRole::kValue, n.kv_heads, n.head_dim}})
      .Vector(module + ".q_norm.weight", n.head_dim);
}

void AddLinearSurroundings(const std::string& module, const Numbers& n,
                           CheckpointBuilder* builder) {
  const std::int64_t key = n.linear_key_heads * n.linear_key_dim;
  const std::int64_t value = n.linear_value_heads * n.linear_value_dim;
  builder
      ->Whole(module + ".conv1d.weight", {2 * key + value, 1, 4}, DeclineReason::kNotTwoDimensional)
      .Vector(module + ".A_log", n.linear_value_heads)
      .Whole(module + ".out_proj.weight", {n.width, value});
}

TestCheckpoint Qwen3Next(const std::string& model_type, const Numbers& n) {
  CheckpointBuilder builder(HybridConfig(model_type, n));
  const std::string linear = "model.layers.0.linear_attn";
  builder
      .Heads(
          linear + ".in_proj_qkvz.weight",
          {2 * (n.linear_key_heads * n.linear_key_dim + n.linear_value_heads * n.linear_value_dim),
           n.width},
          "linear_groups",
          {{HeadRole::kQuery, n.linear_key_heads, n.linear_key_dim},
           {HeadRole::kKey, n.linear_key_heads, n.linear_key_dim},
           {HeadRole::kValue, n.linear_value_heads, n.linear_value_dim},
           {HeadRole::kZ, n.linear_value_heads, n.linear_value_dim}})
      .Whole(linear + ".in_proj_ba.weight", {2 * n.linear_value_heads, n.width});
  AddLinearSurroundings(linear, n, &builder);
  AddGatedAttention("model.layers.3.self_attn", n, &builder);
  return builder.Surroundings("model.", "model.layers.0", n.width).Done();
}

TestCheckpoint Qwen35(const std::string& model_type, const Numbers& n) {
  CheckpointBuilder builder(HybridConfig(model_type, n));
  const std::string linear = "model.layers.0.linear_attn";
  const std::int64_t value = n.linear_value_heads * n.linear_value_dim;
  builder
      .Heads(linear + ".in_proj_qkv.weight",
             {2 * n.linear_key_heads * n.linear_key_dim + value, n.width}, "linear_sections",
             {{HeadRole::kQuery, n.linear_key_heads, n.linear_key_dim},
              {HeadRole::kKey, n.linear_key_heads, n.linear_key_dim},
              {HeadRole::kValue, n.linear_value_heads, n.linear_value_dim}})
      .Heads(linear + ".in_proj_z.weight", {value, n.width}, "separate",
             {{HeadRole::kZ, n.linear_value_heads, n.linear_value_dim}})
      .Whole(linear + ".in_proj_b.weight", {n.linear_value_heads, n.width})
      .Whole(linear + ".in_proj_a.weight", {n.linear_value_heads, n.width});
  AddLinearSurroundings(linear, n, &builder);
  AddGatedAttention("model.layers.3.self_attn", n, &builder);
  return builder.Done();
}

// Linear and latent layers under one name, told apart by one-based lists.
TestCheckpoint KimiLinear(const std::string& model_type, const Numbers& n) {
  json config = LatentConfig(model_type, n);
  config["q_lora_rank"] = nullptr;
  config["head_dim"] = n.head_dim;
  config["linear_attn_config"] = {{"num_heads", n.linear_value_heads},
                                  {"head_dim", n.linear_value_dim},
                                  {"kda_layers", {1, 2, 3}},
                                  {"full_attn_layers", {4}},
                                  {"short_conv_kernel_size", 4}};
  CheckpointBuilder builder(config);
  const std::string linear = "model.layers.0.self_attn", latent = "model.layers.3.self_attn";
  Numbers owner;
  owner.heads = owner.kv_heads = n.linear_value_heads;
  owner.head_dim = n.linear_value_dim;
  const std::int64_t rows = owner.heads * owner.head_dim;
  builder.Separate(linear, n.width, owner)
      .Whole(linear + ".q_conv1d.weight", {rows, 1, 4}, DeclineReason::kNotTwoDimensional)
      .Vector(linear + ".dt_bias", rows)
      .Whole(linear + ".f_a_proj.weight", {owner.head_dim, n.width})
      .Whole(linear + ".f_b_proj.weight", {rows, owner.head_dim})
      .Whole(linear + ".b_proj.weight", {owner.heads, n.width})
      .Whole(linear + ".g_a_proj.weight", {owner.head_dim, n.width}, DeclineReason::kLowRankDown)
      .Heads(linear + ".g_b_proj.weight", {rows, owner.head_dim}, "separate",
             {{HeadRole::kGate, owner.heads, owner.head_dim}})
      .Heads(latent + ".q_proj.weight", {n.heads * (n.nope + n.rope), n.width}, "mla_query",
             {{HeadRole::kQuery, n.heads, n.nope + n.rope}});
  AddLatentKeyValue(latent, n, &builder);
  return builder.Done();
}

TestCheckpoint MiniMax(const std::string& model_type, const Numbers& n) {
  json config = HybridConfig(model_type, n);
  config["layer_types"] = {"full_attention", "linear_attention"};
  const std::string linear = "model.layers.1.self_attn";
  return CheckpointBuilder(config)
      .Separate("model.layers.0.self_attn", n.width, n)
      .Heads(linear + ".qkv_proj.weight", {3 * n.heads * n.head_dim, n.width}, "per_head_qkv",
             {{HeadRole::kQuery, n.heads, n.head_dim},
              {HeadRole::kKey, n.heads, n.head_dim},
              {HeadRole::kValue, n.heads, n.head_dim}})
      .Heads(linear + ".output_gate.weight", {n.heads * n.head_dim, n.width}, "separate",
             {{HeadRole::kGate, n.heads, n.head_dim}})
      .Whole(linear + ".out_proj.weight", {n.width, n.heads * n.head_dim})
      .Vector(linear + ".norm.weight", n.heads * n.head_dim)
      .Done();
}

Numbers PublishedLatent(std::int64_t width, std::int64_t heads, std::int64_t nope,
                        std::int64_t rope, std::int64_t value_dim, std::int64_t q_rank,
                        std::int64_t kv_rank) {
  Numbers n;
  n.width = width;
  n.heads = n.kv_heads = heads;
  n.nope = nope;
  n.rope = rope;
  n.value_dim = value_dim;
  n.q_rank = q_rank;
  n.kv_rank = kv_rank;
  return n;
}

Numbers PublishedHybrid(std::int64_t width, std::int64_t heads, std::int64_t kv_heads,
                        std::int64_t head_dim, std::int64_t key_heads, std::int64_t value_heads,
                        std::int64_t linear_dim) {
  Numbers n;
  n.width = width;
  n.heads = heads;
  n.kv_heads = kv_heads;
  n.head_dim = head_dim;
  n.linear_key_heads = key_heads;
  n.linear_value_heads = value_heads;
  n.linear_key_dim = n.linear_value_dim = linear_dim;
  return n;
}

}  // namespace

std::vector<TestFamily> HybridTestFamilies() {
  const Numbers v3 = PublishedLatent(7168, 128, 128, 64, 128, 1536, 512);
  Numbers kimi = PublishedLatent(2304, 32, 128, 64, 128, 1, 512);
  kimi.head_dim = 72;
  kimi.linear_value_heads = 32;
  kimi.linear_value_dim = 128;
  return {
      {"deepseek_v2", Latent, "deepseek_v2", {PublishedLatent(5120, 128, 128, 64, 128, 1536, 512)}},
      {"deepseek_v2, plain q_proj",
       LatentPlainQuery,
       "deepseek_v2",
       {PublishedLatent(2048, 16, 128, 64, 128, 1, 512)}},
      {"deepseek_v3", Latent, "deepseek_v3", {v3}},
      {"kimi_k2", Latent, "kimi_k2", {PublishedLatent(7168, 64, 128, 64, 128, 1536, 512)}},
      {"deepseek_v32", LatentWithIndexer, "deepseek_v32", {v3}},
      {"glm_moe_dsa",
       LatentWithIndexer,
       "glm_moe_dsa",
       {PublishedLatent(6144, 64, 192, 64, 256, 2048, 512)}},
      {"minicpm3", Latent, "minicpm3", {PublishedLatent(2560, 40, 64, 32, 64, 768, 256)}},
      {"longcat_flash",
       LongCat,
       "longcat_flash",
       {PublishedLatent(6144, 64, 128, 64, 128, 1536, 512)}},
      {"qwen3_next", Qwen3Next, "qwen3_next", {PublishedHybrid(2048, 16, 2, 256, 16, 32, 128)}},
      {"qwen3_5_text", Qwen35, "qwen3_5_text", {PublishedHybrid(4096, 16, 4, 256, 16, 32, 128)}},
      {"kimi_linear", KimiLinear, "kimi_linear", {kimi}},
      {"minimax", MiniMax, "minimax", {PublishedHybrid(6144, 64, 8, 128, 1, 1, 1)}},
  };
}

}  // namespace headwise
