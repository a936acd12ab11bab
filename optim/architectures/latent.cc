// The architectures with multi-head latent attention.
//
// Sources, in transformers: modeling_deepseek_v2.py, modeling_deepseek_v3.py,
// modeling_deepseek_v32.py, modeling_glm4_moe_lite.py, modeling_glm_moe_dsa.py,
// modeling_minicpm3.py, modeling_mistral4.py, modeling_youtu.py, modeling_sarvam_mla.py,
// modeling_longcat_flash.py (two modules a layer), and their configuration files. kimi_k2 is
// DeepSeek-V3's module under another model_type (DeepSeek-AI, "DeepSeek-V2", 2024).
//
// The indexer of sparse attention (deepseek_v32, glm_moe_dsa) chooses the tokens that attention
// sees. Its wq_b and wk have heads of their own, whose geometry may agree with attention's by
// accident; they are never cut.
#include "optim/architectures/latent.h"

#include <utility>

#include "optim/architectures/families.h"

namespace headwise {
namespace {

struct Latent {
  std::int64_t width, heads, nope, rope, value, kv_rank;
};

Latent Read(ModuleConfig& module, const LatentDefaults& d) {
  Latent l;
  l.width = module.Count({"hidden_size"}, d.hidden_size);
  l.heads = module.Count({"num_attention_heads"}, d.heads);
  l.nope = module.Count({"qk_nope_head_dim"}, d.qk_nope_head_dim);
  l.rope = module.Count({"qk_rope_head_dim"}, d.qk_rope_head_dim);
  if (d.v_head_dim > 0) {
    l.value = module.Count({"v_head_dim"}, d.v_head_dim);
  } else if (const std::optional<std::int64_t> value = module.MaybeCount({"v_head_dim"})) {
    l.value = *value;
  } else {
    l.value = module.Quotient("hidden_size", l.width, "num_attention_heads", l.heads);
  }
  l.kv_rank = module.Count({"kv_lora_rank"}, d.kv_lora_rank);
  return l;
}

// The rank of the queries; nullopt: a plain q_proj.
std::optional<std::int64_t> QueryRank(ModuleConfig& module, const LatentDefaults& d) {
  const std::optional<std::int64_t> rank = module.MaybeCount({"q_lora_rank"});
  if (rank.has_value() || d.q_lora_rank == 0 || !module.Absent({"q_lora_rank"})) return rank;
  return module.Count({"q_lora_rank"}, d.q_lora_rank);
}

Placement Query(ModuleConfig& module, const Latent& l, std::int64_t in_features) {
  return {HeadPattern::MlaQuery(l.heads, l.nope, l.rope, module.options().mla_heads), in_features};
}

ArchitectureRule LatentRule(const char* model_type, const LatentDefaults& defaults,
                            std::vector<const char*> others = {},
                            const char* path = "layers.*.self_attn") {
  AttentionModule module = LatentModule(path, defaults);
  for (const char* other : others) module.others.push_back(other);
  return {model_type, {"model."}, {std::move(module)}};
}

}  // namespace

AttentionModule LatentModule(const char* path, const LatentDefaults& d) {
  const PlaceFn plain_query = [d](ModuleConfig& module) {
    const Latent l = Read(module, d);
    if (QueryRank(module, d).has_value()) {
      module.Decline(DeclineReason::kAmbiguous,
                     "a plain q_proj, but the configuration's q_lora_rank asks for a pair of "
                     "low-rank projections");
    }
    return Query(module, l, l.width);
  };
  const PlaceFn up_query = [d](ModuleConfig& module) {
    const Latent l = Read(module, d);
    const std::optional<std::int64_t> rank = QueryRank(module, d);
    if (!rank.has_value()) {
      module.Decline(DeclineReason::kNoGeometry, "the configuration's q_lora_rank is null");
    }
    return Query(module, l, rank.value_or(1));
  };
  const PlaceFn key_value = [d](ModuleConfig& module) -> Placement {
    const Latent l = Read(module, d);
    return {HeadPattern::MlaKeyValue(l.heads, l.nope, l.value, module.options().mla_heads),
            l.kv_rank};
  };
  const PlaceFn output = [d](ModuleConfig& module) -> Placement {
    const Latent l = Read(module, d);
    return {HeadPattern::Separate(HeadRole::kQuery, l.heads, l.value), l.width,
            BlockAxis::kColumns};
  };
  return {.path = path,
          .members = {Projection("q_proj", ParameterRole::kQuery, plain_query),
                      LowRank("q_a_proj", ParameterRole::kQuery),
                      Projection("q_b_proj", ParameterRole::kQuery, up_query),
                      LowRank("kv_a_proj_with_mqa", ParameterRole::kPackedQkv),
                      Projection("kv_b_proj", ParameterRole::kPackedQkv, key_value),
                      Output("o_proj", output)},
          .others = {"q_a_layernorm", "kv_a_layernorm", "rotary_emb"}};
}

std::vector<ArchitectureRule> LatentAttentionRules() {
  // hidden_size, heads, nope, rope, value, kv rank, q rank.
  const LatentDefaults v3 = {7168, 128, 128, 64, 128, 512, 1536};
  return {
      LatentRule("deepseek_v2", {4096, 32, 128, 64, 128, 512, 1536}),
      LatentRule("deepseek_v3", v3),
      LatentRule("kimi_k2", v3),
      LatentRule("deepseek_v32", v3, {"indexer"}),
      LatentRule("glm4_moe_lite", {2048, 20, 192, 64, 256, 512, 768}),
      LatentRule("glm_moe_dsa", {6144, 64, 192, 64, 256, 512, 2048}, {"indexer"}),
      LatentRule("minicpm3", {2560, 40, 64, 32, 0, 256, 768}),
      LatentRule("mistral4", {4096, 32, 64, 64, 128, 256, 1024}),
      LatentRule("youtu", {2048, 16, 128, 64, 128, 512, 1536}),
      LatentRule("sarvam_mla", {4096, 64, 128, 64, 128, 512, 0}),
      LatentRule("longcat_flash", {6144, 64, 128, 64, 128, 512, 1536}, {}, "layers.*.self_attn.*"),
  };
}

}  // namespace headwise
