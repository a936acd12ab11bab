// One fused projection with all query heads, then all key heads, then all value heads ("sectioned");
// internlm2 alone interleaves them per kv group.
//
// In transformers:
//   mpt      modeling_mpt.py   Wqkv; d_model, n_heads; head_dim d_model / n_heads
//   dbrx     modeling_dbrx.py  Wqkv; d_model, n_heads, attn_config.kv_n_heads; head_dim d_model /
//                              n_heads
//   phi3     modeling_phi3.py  qkv_proj; fields as Llama's
//   qwen2_vl_vision, qwen2_5_vl_vision, qwen3_vl_vision, qwen3_5_vision: qkv of the vision tower;
//            num_heads, and embed_dim (qwen2_vl) or hidden_size
// Distributed with the checkpoints, as the files that config.json's auto_map names:
//   chatglm    modeling_chatglm.py    query_key_value; num_attention_heads, kv_channels,
//              multi_query_group_num if multi_query_attention, else per head its query, key, value
//   internlm2  modeling_internlm2.py  wqkv; num_attention_heads, num_key_value_heads, hidden_size
//   baichuan   modeling_baichuan.py   W_pack; hidden_size, num_attention_heads
//   qwen       modeling_qwen.py       c_attn; kv_channels, num_attention_heads, hidden_size
// The last four have no configuration class in transformers, so every field must be there.
#include "optim/architectures/families.h"
#include "optim/architectures/separate.h"

namespace headwise {
namespace {

ArchitectureRule Fused(const char* model_type, std::vector<const char*> base, const char* path,
                       const char* member, PlaceFn place, const char* output,
                       std::vector<const char*> others = {}) {
  return {model_type,
          std::move(base),
          {{.path = path,
            .members = {Projection(member, ParameterRole::kPackedQkv, std::move(place)),
                        Output(output)},
            .others = std::move(others)}}};
}

Placement Mpt(ModuleConfig& module) {
  const std::int64_t width = module.Count({"d_model", "hidden_size"}, 2048);
  const std::int64_t heads = module.Count({"n_heads", "num_attention_heads"}, 16);
  const std::int64_t head_dim = module.Quotient("d_model", width, "n_heads", heads);
  return {HeadPattern::Sectioned({heads, heads, head_dim}), width};
}

Placement Dbrx(ModuleConfig& module) {
  const std::int64_t width = module.Count({"d_model", "hidden_size"}, 2048);
  const std::int64_t heads = module.Count({"n_heads", "num_attention_heads"}, 16);
  const std::int64_t kv_heads = module.Count({"attn_config.kv_n_heads"}, 1);
  const std::int64_t head_dim = module.Quotient("d_model", width, "n_heads", heads);
  return {HeadPattern::Sectioned({heads, kv_heads, head_dim}), width};
}

Placement Phi3(ModuleConfig& module) {
  const AttentionGeometry g = GroupedQueryFields({3072, 32, 0, 0})(module);
  return {HeadPattern::Sectioned({g.query_heads, g.kv_heads, g.head_dim}), g.width};
}

Placement ChatGlm(ModuleConfig& module) {
  const std::int64_t width = module.Count({"hidden_size"});
  const std::int64_t heads = module.Count({"num_attention_heads"});
  const std::int64_t head_dim = module.Count({"kv_channels"});
  if (!module.Flag("multi_query_attention", false)) {
    return {HeadPattern::PerHeadQkv(heads, head_dim), width};
  }
  const std::int64_t kv_heads = module.Count({"multi_query_group_num"});
  return {HeadPattern::Sectioned({heads, kv_heads, head_dim}), width};
}

Placement InternLm2(ModuleConfig& module) {
  const std::int64_t width = module.Count({"hidden_size"});
  const std::int64_t heads = module.Count({"num_attention_heads"});
  const std::int64_t kv_heads = module.MaybeCount({"num_key_value_heads"}).value_or(heads);
  const std::int64_t head_dim = module.Quotient("hidden_size", width, "num_attention_heads", heads);
  return {HeadPattern::Interleaved({heads, kv_heads, head_dim}), width};
}

Placement Baichuan(ModuleConfig& module) {
  const std::int64_t width = module.Count({"hidden_size"});
  const std::int64_t heads = module.Count({"num_attention_heads"});
  const std::int64_t head_dim = module.Quotient("hidden_size", width, "num_attention_heads", heads);
  return {HeadPattern::Sectioned({heads, heads, head_dim}), width};
}

Placement Qwen(ModuleConfig& module) {
  const std::int64_t width = module.Count({"hidden_size"});
  const std::int64_t heads = module.Count({"num_attention_heads"});
  const std::int64_t head_dim = module.Count({"kv_channels"});
  return {HeadPattern::Sectioned({heads, heads, head_dim}), width};
}

PlaceFn QwenVision(const char* width_name, std::int64_t default_width) {
  return [width_name, default_width](ModuleConfig& module) -> Placement {
    const std::int64_t width = module.Count({width_name}, default_width);
    const std::int64_t heads = module.Count({"num_heads", "num_attention_heads"}, 16);
    const std::int64_t head_dim = module.Quotient(width_name, width, "num_heads", heads);
    return {HeadPattern::Sectioned({heads, heads, head_dim}), width};
  };
}

}  // namespace

std::vector<ArchitectureRule> FusedQkvRules() {
  return {
      Fused("mpt", {"transformer."}, "blocks.*.attn", "Wqkv", Mpt, "out_proj"),
      Fused("dbrx", {"transformer."}, "blocks.*.norm_attn_norm.attn", "Wqkv", Dbrx, "out_proj"),
      Fused("phi3", {"model."}, "layers.*.self_attn", "qkv_proj", Phi3, "o_proj", {"rotary_emb"}),
      Fused("chatglm", {"transformer."}, "encoder.layers.*.self_attention", "query_key_value",
            ChatGlm, "dense"),
      Fused("internlm2", {"model."}, "layers.*.attention", "wqkv", InternLm2, "wo", {"rotary_emb"}),
      Fused("baichuan", {"model."}, "layers.*.self_attn", "W_pack", Baichuan, "o_proj",
            {"rotary_emb"}),
      Fused("qwen", {"transformer."}, "h.*.attn", "c_attn", Qwen, "c_proj",
            {"bias", "masked_bias"}),
      Fused("qwen2_vl_vision", {}, "blocks.*.attn", "qkv", QwenVision("embed_dim", 1280), "proj"),
      Fused("qwen2_5_vl_vision", {}, "blocks.*.attn", "qkv", QwenVision("hidden_size", 3584),
            "proj"),
      Fused("qwen3_vl_vision", {}, "blocks.*.attn", "qkv", QwenVision("hidden_size", 1152), "proj"),
      Fused("qwen3_5_vision", {}, "blocks.*.attn", "qkv", QwenVision("hidden_size", 1152), "proj"),
  };
}

}  // namespace headwise
