#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "model/config.h"
#include "model/hf/family.h"

namespace headwise {
namespace {

void MapAttention(const ModelConfig& model, const std::string& ours, const std::string& theirs,
                  TensorMap* map) {
  const AttentionConfig& a = model.attention();
  const PackedQkv layout = *QkvLayout(a);
  const std::int64_t query_width = layout.query_heads() * layout.head_dim();
  const auto qkv = [&](const char* suffix) {
    return std::array<std::string, 3>{theirs + "q_proj." + suffix, theirs + "k_proj." + suffix,
                                      theirs + "v_proj." + suffix};
  };
  map->Packed(ours + "wqkv", qkv("weight"), layout, model.dim());
  if (a.qkv_bias()) map->Packed(ours + "wqkv_bias", qkv("bias"), layout, 0);
  if (a.head_norm() == HEAD_NORM_WEIGHTED || a.head_norm() == HEAD_NORM_GAIN_CENTERED) {
    map->Same(ours + "q_norm", theirs + "q_norm.weight", {layout.head_dim()});
    map->Same(ours + "k_norm", theirs + "k_norm.weight", {layout.head_dim()});
  }
  if (a.sinks()) map->Same(ours + "sinks", theirs + "sinks", {layout.query_heads()});
  if (a.output_gate()) {
    map->Same(ours + "gate", theirs + "gate_proj.weight", {query_width, model.dim()});
  }
  map->Same(ours + "wo", theirs + "o_proj.weight", {model.dim(), query_width});
  if (a.output_bias()) map->Same(ours + "wo_bias", theirs + "o_proj.bias", {model.dim()});
}

}  // namespace

absl::Span<const HfFamily> HfFamilies() {
  static const auto* const families = new std::vector<HfFamily>{
      LlamaFamily(),  MistralFamily(),     Qwen3Family(),    Qwen3MoeFamily(),
      GptOssFamily(), MuseGlimmerFamily(), MuseSparkFamily()};
  return *families;
}

TensorMap MapTensors(const HfFamily& family, const ModelConfig& model) {
  TensorMap map;
  map.Same("embedding.weight", family.prefix + "embed_tokens.weight",
           {model.vocab_size(), model.dim()});
  for (std::int64_t l = 0; l < model.num_layers(); ++l) {
    const std::string ours = absl::StrCat("layers.", l, ".");
    const std::string theirs = absl::StrCat(family.prefix, "layers.", l, ".");
    map.Same(ours + "attention_norm.weight", theirs + "input_layernorm.weight", {model.dim()});
    MapAttention(model, ours + "attention.", theirs + "self_attn.", &map);
    family.map_layer(model, l, ours, theirs, &map);
  }
  map.Same("final_norm.weight", family.prefix + "norm.weight", {model.dim()});
  if (!model.tied_head()) {
    map.Same("head.weight", "lm_head.weight", {model.vocab_size(), model.dim()});
  }
  return map;
}

}  // namespace headwise
