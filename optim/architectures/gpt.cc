// The GPT-2 line: a module `attn` with one fused projection, in four packings.
//
// gpt2 (modeling_gpt2.py, pytorch_utils.py): Conv1D stores c_attn as [width, 3 width], so that query,
// key and value heads lie on the columns, section by section. Cross-attention has c_attn [width,
// 2 width] for keys and values and q_attn for queries. Reads n_embd and n_head.
//
// gpt_bigcode (modeling_gpt_bigcode.py): a Linear. multi_query (the default): all query heads, one
// key head, one value head; else per head its query, key and value. Cross-attention splits keys and
// values between one head and the rest and is left whole.
//
// codegen (modeling_codegen.py): qkv_proj in four blocks, each a quarter of the queries, of the
// values and of the keys: the shards it was trained on. 4 must divide the heads.
#include "optim/architectures/families.h"

namespace headwise {
namespace {

const std::vector<const char*> kMasks = {"bias", "masked_bias", "causal_mask"};

struct Gpt {
  std::int64_t width;
  std::int64_t heads;
  std::int64_t head_dim;
};

Gpt Read(ModuleConfig& module, std::int64_t width, std::int64_t heads) {
  Gpt gpt;
  gpt.width = module.Count({"n_embd", "hidden_size"}, width);
  gpt.heads = module.Count({"n_head", "num_attention_heads"}, heads);
  gpt.head_dim = module.Quotient("n_embd", gpt.width, "n_head", gpt.heads);
  return gpt;
}

// A weight that Conv1D stores [in, out].
Placement OnColumns(absl::StatusOr<HeadPattern> pattern, std::int64_t width) {
  return {std::move(pattern), width, BlockAxis::kColumns, /*transposed_storage=*/true};
}

ArchitectureRule Gpt2() {
  const PlaceFn qkv = [](ModuleConfig& module) {
    const Gpt gpt = Read(module, 768, 12);
    return OnColumns(HeadPattern::Sectioned({gpt.heads, gpt.heads, gpt.head_dim}), gpt.width);
  };
  const PlaceFn query = [](ModuleConfig& module) {
    const Gpt gpt = Read(module, 768, 12);
    return OnColumns(HeadPattern::Separate(HeadRole::kQuery, gpt.heads, gpt.head_dim), gpt.width);
  };
  const PlaceFn key_value = [](ModuleConfig& module) {
    const Gpt gpt = Read(module, 768, 12);
    return OnColumns(
        HeadPattern::Create("sectioned", {{HeadRole::kKey, gpt.heads, gpt.head_dim},
                                          {HeadRole::kValue, gpt.heads, gpt.head_dim}}),
        gpt.width);
  };
  return {"gpt2",
          {"transformer."},
          {{.path = "h.*.attn",
            .members = {Projection("c_attn", ParameterRole::kPackedQkv, qkv), Output("c_proj")},
            .others = kMasks},
           {.path = "h.*.crossattention",
            .members = {Projection("c_attn", ParameterRole::kPackedQkv, key_value),
                        Projection("q_attn", ParameterRole::kQuery, query), Output("c_proj")},
            .others = kMasks}}};
}

ArchitectureRule GptBigCode() {
  const PlaceFn qkv = [](ModuleConfig& module) -> Placement {
    const Gpt gpt = Read(module, 768, 12);
    if (module.Flag("multi_query", true)) {
      return {HeadPattern::Sectioned({gpt.heads, 1, gpt.head_dim}), gpt.width};
    }
    return {HeadPattern::PerHeadQkv(gpt.heads, gpt.head_dim), gpt.width};
  };
  return {"gpt_bigcode",
          {"transformer."},
          {{.path = "h.*.attn",
            .members = {Projection("c_attn", ParameterRole::kPackedQkv, qkv), Output("c_proj")},
            .others = kMasks}}};
}

ArchitectureRule CodeGen() {
  const PlaceFn qkv = [](ModuleConfig& module) -> Placement {
    const Gpt gpt = Read(module, 4096, 16);
    return {HeadPattern::FourBlock(gpt.heads, gpt.head_dim), gpt.width};
  };
  return {"codegen",
          {"transformer."},
          {{.path = "h.*.attn",
            .members = {Projection("qkv_proj", ParameterRole::kPackedQkv, qkv), Output("out_proj")},
            .others = kMasks}}};
}

}  // namespace

std::vector<ArchitectureRule> GptRules() { return {Gpt2(), GptBigCode(), CodeGen()}; }

}  // namespace headwise
