// falcon (modeling_falcon.py, configuration_falcon.py): one query_key_value in three packings.
//
// FalconAttention reads hidden_size, num_attention_heads, num_kv_heads, new_decoder_architecture and
// multi_query. head_dim is always hidden_size / num_attention_heads.
//   new_decoder_architecture    per kv group its query heads, its key, its value (num_kv_heads groups)
//   multi_query (the default)   all query heads, one key head, one value head; num_kv_heads is not
//                               read (Falcon-7B's says 71)
//   neither                     per head its query, key and value
#include "optim/architectures/families.h"

namespace headwise {
namespace {

Placement QueryKeyValue(ModuleConfig& module) {
  const std::int64_t width = module.Count({"hidden_size", "n_embed"}, 4544);
  const std::int64_t heads = module.Count({"num_attention_heads", "n_head"}, 71);
  const std::int64_t head_dim = module.Quotient("hidden_size", width, "num_attention_heads", heads);
  if (module.Flag("new_decoder_architecture", false)) {
    const std::int64_t kv_heads = module.MaybeCount({"num_kv_heads", "n_head_kv"}).value_or(heads);
    return {HeadPattern::Interleaved({heads, kv_heads, head_dim}), width};
  }
  if (module.Flag("multi_query", true)) {
    return {HeadPattern::Sectioned({heads, 1, head_dim}), width};
  }
  const std::int64_t kv_heads = module.MaybeCount({"num_kv_heads", "n_head_kv"}).value_or(heads);
  if (kv_heads != heads) {
    module.Decline(DeclineReason::kAmbiguous,
                   "the configuration has neither new_decoder_architecture nor multi_query, but "
                   "fewer key/value heads than query heads; this architecture has no such packing");
  }
  return {HeadPattern::PerHeadQkv(heads, head_dim), width};
}

}  // namespace

std::vector<ArchitectureRule> FalconRules() {
  return {{"falcon",
           {"transformer."},
           {{.path = "h.*.self_attention",
             .members = {Projection("query_key_value", ParameterRole::kPackedQkv, QueryKeyValue),
                         Output("dense")}}}}};
}

}  // namespace headwise
