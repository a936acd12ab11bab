// Architectures that alternate linear attention with softmax attention. The two have geometries of
// their own; a linear module's is never taken from num_attention_heads.
//
// qwen3_next (modeling_qwen3_next.py), qwen3_5_text and qwen3_5_moe_text (modeling_qwen3_5.py,
// modeling_qwen3_5_moe.py): layers.*.linear_attn reads linear_num_key_heads,
// linear_num_value_heads, linear_key_head_dim and linear_value_head_dim. qwen3_next packs q, k, v
// and z per key head into in_proj_qkvz; qwen3_5 stores in_proj_qkv in sections and in_proj_z apart.
// layers.*.self_attn has a q_proj that holds, head after head, the query and its gate.
//
// kimi_linear (modeling_kimi_linear.py, configuration_kimi_linear.py): both kinds live at
// layers.*.self_attn. layer_types tells them apart or, in published configurations,
// linear_attn_config.kda_layers and full_attn_layers, which count from 1. Linear layers (Kimi delta
// attention) read linear_num_heads and linear_head_dim (published: linear_attn_config.num_heads and
// head_dim); the others are latent attention.
//
// minimax (modeling_minimax.py): layer_types tells lightning attention, whose qkv_proj holds head
// after head the query, key and value and whose output_gate has the queries' rows, from softmax
// attention with fields as Llama's.
#include "optim/architectures/families.h"
#include "optim/architectures/latent.h"
#include "optim/architectures/separate.h"

namespace headwise {
namespace {

constexpr char kOneRowPerHead[] = "one row per head: there is nothing to orthogonalise in a head";

LinearHeadGeometry ReadLinear(ModuleConfig& module) {
  LinearHeadGeometry g;
  g.key_heads = module.Count({"linear_num_key_heads"}, 16);
  g.value_heads = module.Count({"linear_num_value_heads"}, 32);
  g.key_dim = module.Count({"linear_key_head_dim"}, 128);
  g.value_dim = module.Count({"linear_value_head_dim"}, 128);
  return g;
}

PlaceFn Linear(std::int64_t width, absl::StatusOr<HeadPattern> (*pattern)(LinearHeadGeometry)) {
  return [width, pattern](ModuleConfig& module) -> Placement {
    const std::int64_t in_features = module.Count({"hidden_size"}, width);
    return {pattern(ReadLinear(module)), in_features};
  };
}

absl::StatusOr<HeadPattern> Z(LinearHeadGeometry g) {
  if (g.value_heads % g.key_heads != 0) return HeadPattern::LinearSections(g);  // its error
  return HeadPattern::Separate(HeadRole::kZ, g.value_heads, g.value_dim,
                               g.value_heads / g.key_heads);
}

// layers.*.self_attn with a gate behind every query.
AttentionModule GatedAttention(const GroupedQueryDefaults& defaults) {
  const GeometryFn geometry = GroupedQueryFields(defaults);
  AttentionModule module = SeparateModule("layers.*.self_attn", geometry, {}, {"q_norm", "k_norm"});
  module.members[0] =
      Projection("q_proj", ParameterRole::kQuery, [geometry](ModuleConfig& config) -> Placement {
        const AttentionGeometry g = geometry(config);
        const std::int64_t group = config.Quotient("number of query heads", g.query_heads,
                                                   "number of key/value heads", g.kv_heads);
        return {HeadPattern::GatedQuery(g.query_heads, g.head_dim, group), g.width};
      });
  return module;
}

ArchitectureRule Qwen3Next() {
  return {"qwen3_next",
          {"model."},
          {GatedAttention({2048, 16, 2, 256}),
           {.path = "layers.*.linear_attn",
            .members = {Projection("in_proj_qkvz", ParameterRole::kPackedQkv,
                                   Linear(2048, HeadPattern::LinearGroups)),
                        NoHeads("in_proj_ba", ParameterRole::kAttentionGate, kOneRowPerHead),
                        Output("out_proj")},
            .others = {"conv1d", "norm", "A_log", "dt_bias"}}}};
}

ArchitectureRule Qwen35(const char* model_type, std::int64_t width,
                        const GroupedQueryDefaults& softmax) {
  return {model_type,
          {"model."},
          {GatedAttention(softmax),
           {.path = "layers.*.linear_attn",
            .members = {Projection("in_proj_qkv", ParameterRole::kPackedQkv,
                                   Linear(width, HeadPattern::LinearSections)),
                        Projection("in_proj_z", ParameterRole::kAttentionGate, Linear(width, Z)),
                        NoHeads("in_proj_b", ParameterRole::kAttentionGate, kOneRowPerHead),
                        NoHeads("in_proj_a", ParameterRole::kAttentionGate, kOneRowPerHead),
                        Output("out_proj")},
            .others = {"conv1d", "norm", "A_log", "dt_bias"}}}};
}

// Whether the layer is one of Kimi delta attention.
bool IsKimiDelta(ModuleConfig& module) {
  if (!module.Absent({"layer_types"})) return module.LayerWord("layer_types") == "linear_attention";
  const std::int64_t layer = module.layer() + 1;
  const bool delta = module.section().ListHolds("linear_attn_config.kda_layers", layer);
  if (delta == module.section().ListHolds("linear_attn_config.full_attn_layers", layer)) {
    module.Decline(delta ? DeclineReason::kAmbiguous : DeclineReason::kNoGeometry,
                   delta ? "kda_layers and full_attn_layers both hold this layer"
                         : "neither layer_types nor kda_layers and full_attn_layers say of which "
                           "kind this layer is");
  }
  return delta;
}

AttentionGeometry KimiDelta(ModuleConfig& module) {
  AttentionGeometry g;
  g.width = module.Count({"hidden_size"}, 2304);
  g.query_heads = module.Count({"linear_attn_config.num_heads", "linear_num_heads"}, 32);
  g.kv_heads = g.query_heads;
  g.head_dim = module.Count({"linear_attn_config.head_dim", "linear_head_dim"}, 128);
  return g;
}

ArchitectureRule KimiLinear() {
  AttentionModule delta =
      SeparateModule("layers.*.self_attn", KimiDelta, {},
                     {"q_conv1d", "k_conv1d", "v_conv1d", "conv1d", "A_log", "dt_bias", "f_a_proj",
                      "f_b_proj", "forget_gate", "o_norm"});
  delta.members.push_back(NoHeads("b_proj", ParameterRole::kAttentionGate, kOneRowPerHead));
  delta.members.push_back(LowRank("g_a_proj", ParameterRole::kAttentionGate));
  delta.members.push_back(
      Projection("g_b_proj", ParameterRole::kAttentionGate, [](ModuleConfig& module) {
        AttentionGeometry g = KimiDelta(module);
        g.width = g.head_dim;  // the rank of the gate
        return PlaceQuery(module, g, HeadRole::kGate);
      }));
  delta.applies = IsKimiDelta;
  AttentionModule softmax = LatentModule("layers.*.self_attn", {2304, 32, 128, 64, 128, 512, 0});
  softmax.applies = [](ModuleConfig& module) { return !IsKimiDelta(module); };
  return {"kimi_linear", {"model."}, {std::move(delta), std::move(softmax)}};
}

ArchitectureRule MiniMax() {
  const GeometryFn geometry = GroupedQueryFields({4096, 32, 8, 0});
  const auto is_linear = [](ModuleConfig& module) {
    return module.LayerWord("layer_types") == "linear_attention";
  };
  AttentionModule softmax = SeparateModule("layers.*.self_attn", geometry);
  softmax.applies = [is_linear](ModuleConfig& module) { return !is_linear(module); };
  const PlaceFn qkv = [geometry](ModuleConfig& module) -> Placement {
    const AttentionGeometry g = geometry(module);
    return {HeadPattern::PerHeadQkv(g.query_heads, g.head_dim), g.width};
  };
  const PlaceFn gate = [geometry](ModuleConfig& module) {
    AttentionGeometry g = geometry(module);
    g.kv_heads = g.query_heads;
    return PlaceQuery(module, g, HeadRole::kGate);
  };
  return {"minimax",
          {"model."},
          {std::move(softmax),
           {.path = "layers.*.self_attn",
            .members = {Projection("qkv_proj", ParameterRole::kPackedQkv, qkv),
                        Projection("output_gate", ParameterRole::kAttentionGate, gate),
                        Output("out_proj")},
            .others = {"norm", "slope_rate", "query_decay", "key_decay", "diagonal_decay"},
            .applies = is_linear}}};
}

}  // namespace

std::vector<ArchitectureRule> LinearAttentionRules() {
  return {Qwen3Next(), Qwen35("qwen3_5_text", 4096, {4096, 16, 4, 256}),
          Qwen35("qwen3_5_moe_text", 2048, {2048, 16, 2, 256}), KimiLinear(), MiniMax()};
}

}  // namespace headwise
