// Other model_types of the forms that the families make in full: here only their attention, which is
// what their own rules have to find.
#include "optim/architectures/testing/builder.h"
#include "optim/architectures/testing/families.h"

namespace headwise {
namespace {

using nlohmann::json;

Numbers MultiHead(Numbers n) {
  n.kv_heads = n.heads;
  return n;
}

constexpr char kModule[] = "model.layers.0.self_attn";

TestCheckpoint Grouped(const std::string& model_type, const Numbers& n) {
  return CheckpointBuilder(LlamaFields(model_type, n.width, n))
      .Separate(kModule, n.width, n)
      .Whole(std::string(kModule) + (model_type == "lfm2" ? ".out_proj.weight" : ".o_proj.weight"),
             {n.width, n.heads * n.head_dim})
      .Done();
}

// The module derives its own head_dim: one in the configuration means nothing.
TestCheckpoint HeadDimNotRead(const std::string& model_type, const Numbers& n) {
  const std::int64_t width = n.heads * n.head_dim;
  json config = LlamaFields(model_type, width, n);
  config["head_dim"] = n.head_dim + 1;
  CheckpointBuilder builder(config);
  builder.Separate(kModule, width, n);
  if (model_type == "mllama_text_model") builder.Separate("model.layers.1.cross_attn", width, n);
  return builder.Done();
}

TestCheckpoint Gated(const std::string& model_type, const Numbers& n) {
  return CheckpointBuilder(LlamaFields(model_type, n.width, n)).Gated("model.layers.0", n).Done();
}

TestCheckpoint BioGpt(const std::string& model_type, const Numbers& n) {
  const std::int64_t width = n.heads * n.head_dim;
  return CheckpointBuilder(LlamaFields(model_type, width, n))
      .Separate("biogpt.layers.0.self_attn", width, MultiHead(n))
      .Done();
}

TestCheckpoint Xglm(const std::string& model_type, const Numbers& n) {
  const std::int64_t width = n.heads * n.head_dim;
  return CheckpointBuilder(
             {{"model_type", model_type}, {"d_model", width}, {"attention_heads", n.heads}})
      .Separate(kModule, width, MultiHead(n))
      .Done();
}

TestCheckpoint GptNeoXJapanese(const std::string& model_type, const Numbers& n) {
  CheckpointBuilder builder(LlamaFields(model_type, n.heads * n.head_dim, n));
  builder.Fused("gpt_neox_japanese.layers.0.attention.query_key_value.weight", "per_head_qkv",
                n.heads, n.head_dim);
  return builder.Done();
}

json LatentFields(const std::string& model_type, const Numbers& n) {
  return {{"model_type", model_type},       {"hidden_size", n.width},
          {"num_attention_heads", n.heads}, {"qk_nope_head_dim", n.nope},
          {"qk_rope_head_dim", n.rope},     {"v_head_dim", n.value_dim},
          {"kv_lora_rank", n.kv_rank},      {"q_lora_rank", n.q_rank}};
}

void AddLatent(const std::string& module, const Numbers& n, bool low_rank_query,
               CheckpointBuilder* builder) {
  builder
      ->Heads(module + (low_rank_query ? ".q_b_proj.weight" : ".q_proj.weight"),
              {n.heads * (n.nope + n.rope), low_rank_query ? n.q_rank : n.width}, "mla_query",
              {{HeadRole::kQuery, n.heads, n.nope + n.rope}})
      .Heads(module + ".kv_b_proj.weight", {n.heads * (n.nope + n.value_dim), n.kv_rank},
             "mla_key_value", {{HeadRole::kKeyValue, n.heads, n.nope + n.value_dim}});
}

TestCheckpoint Latent(const std::string& model_type, const Numbers& n) {
  json config = LatentFields(model_type, n);
  const bool low_rank_query = model_type != "sarvam_mla";
  if (!low_rank_query) config.erase("q_lora_rank");
  CheckpointBuilder builder(config);
  AddLatent(kModule, n, low_rank_query, &builder);
  return builder.Done();
}

TestCheckpoint KimiK25(const std::string& model_type, const Numbers& n) {
  CheckpointBuilder builder({{"model_type", model_type},
                             {"text_config", LatentFields("deepseek_v3", n)},
                             {"vision_config",
                              {{"hidden_size", n.vision_heads * n.vision_head_dim},
                               {"num_attention_heads", n.vision_heads}}}});
  AddLatent("language_model.model.layers.0.self_attn", n, true, &builder);
  builder.Fused("vision_tower.encoder.blocks.0.wqkv.weight", "sectioned", n.vision_heads,
                n.vision_head_dim);
  return builder.Done();
}

}  // namespace

std::vector<TestFamily> KinTestFamilies() {
  std::vector<TestFamily> families;
  const auto add = [&](TestCheckpoint (*make)(const std::string&, const Numbers&),
                       const std::vector<const char*>& types) {
    for (const char* type : types) families.push_back({type, make, type, {}});
  };
  add(Grouped, {"apertus",
                "arcee",
                "bamba",
                "bitnet",
                "cohere2",
                "ernie4_5_moe",
                "exaone4",
                "falcon_h1",
                "flex_olmo",
                "gemma3n_text",
                "glm",
                "granitemoe",
                "granitemoehybrid",
                "granitemoeshared",
                "helium",
                "internlm3",
                "jamba",
                "lfm2",
                "llama4_text",
                "ministral3",
                "muse_glimmer_assistant",
                "olmo",
                "olmo3",
                "olmoe",
                "phimoe",
                "qwen2_moe",
                "qwen3_vl_moe_text",
                "qwen3_vl_text",
                "solar_open"});
  add(HeadDimNotRead, {"stablelm", "qwen2_vl_text", "qwen2_5_vl_text", "mllama_text_model"});
  add(Gated, {"afmoe", "muse_spark_text"});
  add(BioGpt, {"biogpt"});
  add(Xglm, {"xglm"});
  add(GptNeoXJapanese, {"gpt_neox_japanese"});
  add(Latent, {"glm4_moe_lite", "mistral4", "youtu", "sarvam_mla"});
  add(KimiK25, {"kimi_k25"});
  return families;
}

}  // namespace headwise
