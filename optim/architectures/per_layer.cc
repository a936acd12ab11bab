// Separate projections whose head counts differ from layer to layer.
//
// laguna (modeling_laguna.py): num_attention_heads_per_layer gives each layer's query heads, absent
// or null: num_attention_heads everywhere. g_proj gates the output, one row per head or head_dim
// rows per head as `gating` says; num_key_value_heads and head_dim are the same in every layer.
//
// mimo_v2_flash (modeling_mimo_v2_flash.py): layers whose layer_types entry is sliding_attention
// have twice num_key_value_heads; values are v_head_dim wide.
#include <optional>

#include "optim/architectures/families.h"
#include "optim/architectures/separate.h"

namespace headwise {
namespace {

AttentionGeometry Laguna(ModuleConfig& module) {
  AttentionGeometry g;
  g.width = module.Count({"hidden_size"}, 2048);
  const std::optional<std::int64_t> heads = module.LayerCount("num_attention_heads_per_layer");
  g.query_heads = heads.has_value() ? *heads : module.Count({"num_attention_heads"}, 48);
  g.kv_heads = module.Count({"num_key_value_heads"}, 8);
  g.head_dim = module.Count({"head_dim"}, 128);
  return g;
}

Placement LagunaGate(ModuleConfig& module) {
  const ConfigValue gating = module.section().Get("gating");
  const bool per_head =
      gating.kind == ConfigValue::Kind::kAbsent || gating.flag || gating.text == "per-head";
  if (per_head) {
    module.Decline(DeclineReason::kNotAttention,
                   "a gate of one row per head: there is nothing to orthogonalise in a head");
  }
  return PlaceQuery(module, Laguna(module), HeadRole::kGate);
}

AttentionGeometry MiMoV2Flash(ModuleConfig& module) {
  AttentionGeometry g;
  g.width = module.Count({"hidden_size"}, 4096);
  g.query_heads = module.Count({"num_attention_heads"}, 64);
  const std::int64_t kv_heads = module.Count({"num_key_value_heads"}, 4);
  const std::string type = module.LayerWord("layer_types");
  g.kv_heads = type == "sliding_attention" ? 2 * kv_heads : kv_heads;
  g.head_dim = module.Count({"head_dim"}, 192);
  g.value_dim = module.Count({"v_head_dim"}, 128);
  return g;
}

}  // namespace

std::vector<ArchitectureRule> PerLayerRules() {
  AttentionModule laguna = SeparateModule("layers.*.self_attn", Laguna, {}, {"q_norm", "k_norm"});
  laguna.members.push_back(Projection("g_proj", ParameterRole::kAttentionGate, LagunaGate));
  return {
      {"laguna", {"model."}, {std::move(laguna)}},
      {"mimo_v2_flash",
       {"model."},
       {SeparateModule("layers.*.self_attn", MiMoV2Flash, {}, {"sinks", "attention_sink_bias"})}}};
}

}  // namespace headwise
