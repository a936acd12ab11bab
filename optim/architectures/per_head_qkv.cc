// One query_key_value that holds, head after head, its query, its key and its value; head_dim is
// always hidden_size / heads.
//
// Sources, in transformers: modeling_gpt_neox.py, modeling_gpt_neox_japanese.py, modeling_bloom.py
// (fields n_head and hidden_size; published configurations also call them num_attention_heads and
// n_embed), modeling_persimmon.py.
#include "optim/architectures/families.h"

namespace headwise {
namespace {

struct Fields {
  std::vector<const char*> width;
  std::int64_t default_width;
  std::vector<const char*> heads;
  std::int64_t default_heads;
};

ArchitectureRule PerHead(const char* model_type, const char* base, const char* path,
                         const Fields& fields, std::vector<const char*> others = {}) {
  const PlaceFn place = [fields](ModuleConfig& module) -> Placement {
    const std::int64_t width = module.Count(fields.width, fields.default_width);
    const std::int64_t heads = module.Count(fields.heads, fields.default_heads);
    const std::int64_t head_dim = module.Quotient(fields.width[0], width, fields.heads[0], heads);
    return {HeadPattern::PerHeadQkv(heads, head_dim), width};
  };
  return {model_type,
          {base},
          {{.path = path,
            .members = {Projection("query_key_value", ParameterRole::kPackedQkv, place),
                        Output("dense")},
            .others = std::move(others)}}};
}

Fields Usual(std::int64_t width, std::int64_t heads) {
  return {{"hidden_size"}, width, {"num_attention_heads"}, heads};
}

}  // namespace

std::vector<ArchitectureRule> PerHeadQkvRules() {
  return {PerHead("bloom", "transformer.", "h.*.self_attention",
                  {{"hidden_size", "n_embed"}, 64, {"n_head", "num_attention_heads"}, 8}),
          PerHead("gpt_neox", "gpt_neox.", "layers.*.attention", Usual(6144, 64),
                  {"bias", "masked_bias", "rotary_emb"}),
          PerHead("gpt_neox_japanese", "gpt_neox_japanese.", "layers.*.attention", Usual(2560, 32),
                  {"dense_bias", "rotary_emb"}),
          PerHead("persimmon", "model.", "layers.*.self_attn", Usual(4096, 64),
                  {"q_layernorm", "k_layernorm", "rotary_emb"})};
}

}  // namespace headwise
