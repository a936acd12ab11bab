// Separate projections with as many key/value heads as query heads, width / heads wide whatever
// else the configuration says.
//
// Sources, in transformers: modeling_opt.py, modeling_gptj.py, modeling_gpt_neo.py,
// modeling_biogpt.py, modeling_xglm.py; vision towers: modeling_clip.py, modeling_siglip.py,
// modeling_pixtral.py, modeling_mllama.py, modeling_llama4.py, modeling_muse_glimmer.py,
// modeling_muse_spark.py, modeling_kimi_k25.py.
#include "optim/architectures/families.h"
#include "optim/architectures/separate.h"

namespace headwise {
namespace {

// gptj and gpt_neo keep their causal mask in the module.
const std::vector<const char*> kMasks = {"bias", "masked_bias"};

ArchitectureRule Rule(const char* model_type, std::vector<const char*> base,
                      const std::vector<const char*>& paths, const MultiHeadFieldNames& fields,
                      const char* output, const std::vector<const char*>& others = {}) {
  ArchitectureRule rule{model_type, std::move(base), {}};
  for (const char* path : paths) {
    rule.modules.push_back(
        SeparateModule(path, MultiHeadFields(fields), {.output = output}, others));
  }
  return rule;
}

// Several heads in one projection, section by section.
AttentionModule FusedModule(const char* path, const char* member, const MultiHeadFieldNames& fields,
                            const char* output, std::vector<const char*> others) {
  const GeometryFn geometry = MultiHeadFields(fields);
  return {.path = path,
          .members = {Projection(member, ParameterRole::kPackedQkv,
                                 [geometry](ModuleConfig& module) -> Placement {
                                   const AttentionGeometry g = geometry(module);
                                   return {HeadPattern::Sectioned(
                                               {g.query_heads, g.query_heads, g.head_dim}),
                                           g.width};
                                 }),
                      Output(output)},
          .others = std::move(others)};
}

// The pooling head is torch's MultiheadAttention: in_proj_weight in sections.
ArchitectureRule Siglip() {
  const MultiHeadFieldNames fields = {{"hidden_size"}, 768, {"num_attention_heads"}, 12};
  ArchitectureRule rule = Rule("siglip_vision_model", {"vision_model."},
                               {"encoder.layers.*.self_attn"}, fields, "out_proj");
  rule.modules.push_back(
      FusedModule("head.attention", "in_proj_weight", fields, "out_proj", {"in_proj_bias"}));
  return rule;
}

// Checkpoints as published keep a block's wqkv and wo beside its norms and feed-forward layer.
ArchitectureRule KimiVision() {
  const MultiHeadFieldNames fields = {{"hidden_size"}, 1152, {"num_attention_heads"}, 16};
  ArchitectureRule rule = Rule("kimi_k25_vision", {}, {"layers.*.attn"}, fields, "proj");
  rule.modules.push_back(
      FusedModule("encoder.blocks.*", "wqkv", fields, "wo", {"norm0", "norm1", "mlp"}));
  return rule;
}

}  // namespace

std::vector<ArchitectureRule> MultiHeadRules() {
  const auto usual = [](std::int64_t width, std::int64_t heads) {
    return MultiHeadFieldNames{{"hidden_size"}, width, {"num_attention_heads"}, heads};
  };
  return {
      Rule("opt", {"model."}, {"decoder.layers.*.self_attn"}, usual(768, 12), "out_proj"),
      Rule("biogpt", {"biogpt."}, {"layers.*.self_attn"}, usual(1024, 16), "out_proj"),
      Rule("gptj", {"transformer."}, {"h.*.attn"},
           {{"n_embd", "hidden_size"}, 4096, {"n_head", "num_attention_heads"}, 16}, "out_proj",
           kMasks),
      Rule("gpt_neo", {"transformer."}, {"h.*.attn.attention"},
           {{"hidden_size"}, 2048, {"num_heads", "num_attention_heads"}, 16}, "out_proj", kMasks),
      Rule("xglm", {"model."}, {"layers.*.self_attn"},
           {{"d_model", "hidden_size"}, 1024, {"attention_heads", "num_attention_heads"}, 16},
           "out_proj"),
      Rule("clip_vision_model", {"vision_model."}, {"encoder.layers.*.self_attn"}, usual(768, 12),
           "out_proj"),
      Siglip(),
      Rule("pixtral", {}, {"transformer.layers.*.attention"}, usual(1024, 16), "o_proj"),
      Rule("mllama_vision_model", {},
           {"transformer.layers.*.self_attn", "global_transformer.layers.*.self_attn"},
           {{"hidden_size"}, 1280, {"attention_heads"}, 16}, "o_proj"),
      Rule("llama4_vision_model", {}, {"model.layers.*.self_attn"}, usual(768, 16), "o_proj"),
      Rule("muse_glimmer_vision", {}, {"layers.*.attn"}, usual(1536, 16), "proj"),
      Rule("muse_spark_vision", {}, {"layers.*.attn"}, usual(1536, 16), "proj"),
      KimiVision(),
  };
}

}  // namespace headwise
