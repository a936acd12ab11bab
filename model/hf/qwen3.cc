// qwen3, qwen3_moe: weighted norms of q and k per head; the second with experts.
// Source: configuration_qwen3.py, modeling_qwen3.py and those of qwen3_moe in transformers.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/config.h"
#include "model/hf/common_fields.h"
#include "model/hf/family.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;

constexpr char kActivation[] = "hidden_act";

// The norm's result is rounded before it is multiplied by the weight, and after.
void SetHeadNorms(ModelConfig* model) {
  AttentionConfig& a = *model->mutable_attention();
  a.set_head_norm(HEAD_NORM_WEIGHTED);
  a.set_head_norm_epsilon(model->attention_norm().epsilon());
  a.set_rounding(BEFORE_WEIGHT);
}

// 0: no window.
std::int64_t ReadUsedWindow(ConfigFields& fields) {
  const std::int64_t window = ReadWindow(fields, 4096);
  return fields.Flag("use_sliding_window", false) ? window : 0;
}

void ReadQwen3(ConfigFields& fields, ModelConfig* model) {
  ReadCommon(fields,
             {.vocab_size = 151936,
              .hidden_size = 4096,
              .intermediate_size = 22016,
              .layers = 32,
              .heads = 32,
              .kv_heads = 32,
              .head_dim = 128,
              .max_position = 32768,
              .epsilon = 1e-6},
             kActivation, model);
  SetHeadNorms(model);
  const std::int64_t window = ReadUsedWindow(fields);
  // Zero is possible here: every layer slides.
  const double first = fields.Number("max_window_layers", 28);
  std::vector<bool> slides(static_cast<std::size_t>(model->num_layers()));
  for (std::size_t l = 0; l < slides.size(); ++l) {
    slides[l] = window > 0 && static_cast<double>(l) >= first;
  }
  SetLayersOrFail(ReadLayerTypes(fields, std::move(slides), window), "layer_types", fields, model);
}

void WriteWindow(const ModelConfig& model, json* fields) {
  const std::int64_t window = OneWindow(model);
  (*fields)["use_sliding_window"] = window > 0;
  (*fields)["sliding_window"] = window > 0 ? json(window) : json();
}

void WriteQwen3(const ModelConfig& model, json* fields, json*) {
  WriteCommon(model, kActivation, fields);
  WriteOldRope(model.attention().rope(), /*say_default=*/false, fields);
  WriteWindow(model, fields);
  (*fields)["layer_types"] = LayerTypes(model);
  // What classes that do not know layer_types go by, where they can.
  std::int64_t full = 0;
  while (full < model.num_layers() && LayerWindow(model, full) == 0) ++full;
  (*fields)["max_window_layers"] = full;
}

void MapQwen3Layer(const ModelConfig& model, std::int64_t, const std::string& ours,
                   const std::string& theirs, TensorMap* map) {
  map->Same(ours + "ffn_norm.weight", theirs + "post_attention_layernorm.weight", {model.dim()});
  MapDenseFfn(model, ours, theirs, map);
}

// The first layers may be dense, the others have experts: what a MoeConfig can say.
std::int64_t ReadDenseLayers(ConfigFields& fields, std::int64_t layers) {
  const std::int64_t step = fields.Count("decoder_sparse_step", 1);
  std::vector<bool> dense(static_cast<std::size_t>(layers));
  for (std::int64_t l = 0; l < layers; ++l) {
    dense[static_cast<std::size_t>(l)] = (l + 1) % step != 0;
  }
  for (const double l : fields.Numbers("mlp_only_layers").value_or(std::vector<double>())) {
    if (l != std::floor(l) || l < 0 || l >= static_cast<double>(layers)) {
      fields.Fail("mlp_only_layers",
                  absl::StrCat("expected layers from 0 to ", layers - 1, ", found ", l));
      return 0;
    }
    dense[static_cast<std::size_t>(l)] = true;
  }
  std::int64_t first = 0;
  while (first < layers && dense[static_cast<std::size_t>(first)]) ++first;
  for (std::int64_t l = first; l < layers; ++l) {
    if (!dense[static_cast<std::size_t>(l)]) continue;
    fields.Fail(step == 1 ? "mlp_only_layers" : "decoder_sparse_step",
                absl::StrCat("makes layer ", l, " dense behind layer ", first,
                             ", which has experts; expected dense layers at the beginning only"));
  }
  if (first == layers) fields.Fail("mlp_only_layers", "leaves no layer experts; expected some");
  return first;
}

void ReadQwen3Moe(ConfigFields& fields, ModelConfig* model) {
  ReadCommon(fields,
             {.vocab_size = 151936,
              .hidden_size = 2048,
              .intermediate_size = 6144,
              .layers = 24,
              .heads = 32,
              .kv_heads = 4,
              .max_position = 32768,
              .epsilon = 1e-6},
             kActivation, model);
  SetHeadNorms(model);
  const auto layers = static_cast<std::size_t>(model->num_layers());
  SetLayersOrFail(std::vector<LayerKind>(layers, {.window = ReadUsedWindow(fields)}),
                  "sliding_window", fields, model);
  MoeConfig& moe = *model->mutable_ffn()->mutable_moe();
  moe.set_num_experts(CountOf(fields, "num_experts", "num_local_experts", 128));
  moe.set_experts_per_token(fields.Count("num_experts_per_tok", 8));
  moe.set_expert_dim(fields.Count("moe_intermediate_size", 768));
  moe.set_score(ROUTER_SOFTMAX);
  moe.set_normalize(fields.Flag("norm_topk_prob", false));
  moe.set_scaling_factor(1);
  moe.set_dense_layers(ReadDenseLayers(fields, model->num_layers()));
  if (moe.dense_layers() == 0) model->mutable_ffn()->set_hidden_dim(0);
  ReadAuxiliaryLoss(fields, &moe);
  // Without layer_types in the class, nor a use for this one.
  fields.Ignore({"max_window_layers"});
}

void WriteQwen3Moe(const ModelConfig& model, json* fields, json*) {
  WriteCommon(model, kActivation, fields);
  WriteOldRope(model.attention().rope(), /*say_default=*/false, fields);
  WriteWindow(model, fields);
  const MoeConfig& moe = model.ffn().moe();
  if (moe.dense_layers() == 0) (*fields)["intermediate_size"] = moe.expert_dim();
  (*fields)["num_experts"] = moe.num_experts();
  (*fields)["num_experts_per_tok"] = moe.experts_per_token();
  (*fields)["moe_intermediate_size"] = moe.expert_dim();
  (*fields)["norm_topk_prob"] = moe.normalize();
  (*fields)["decoder_sparse_step"] = 1;
  json dense = json::array();
  for (std::int64_t l = 0; l < moe.dense_layers(); ++l) dense.push_back(l);
  (*fields)["mlp_only_layers"] = dense;
  WriteAuxiliaryLoss(moe, fields);
}

void MapQwen3MoeLayer(const ModelConfig& model, std::int64_t layer, const std::string& ours,
                      const std::string& theirs, TensorMap* map) {
  map->Same(ours + "ffn_norm.weight", theirs + "post_attention_layernorm.weight", {model.dim()});
  if (!LayerHasExperts(model, layer)) {
    MapDenseFfn(model, ours, theirs, map);
    return;
  }
  const MoeConfig& moe = model.ffn().moe();
  map->Same(ours + "ffn.router", theirs + "mlp.gate.weight", {moe.num_experts(), model.dim()});
  const auto stack = [&](const char* part, const char* projection, const Shape& shape) {
    std::vector<std::string> tensors;
    for (std::int64_t e = 0; e < moe.num_experts(); ++e) {
      tensors.push_back(absl::StrCat(theirs, "mlp.experts.", e, ".", projection, ".weight"));
    }
    map->Stack(ours + "ffn." + part, tensors, shape);
  };
  stack("w1", "gate_proj", {moe.expert_dim(), model.dim()});
  stack("w3", "up_proj", {moe.expert_dim(), model.dim()});
  stack("w2", "down_proj", {model.dim(), moe.expert_dim()});
}

}  // namespace

HfFamily Qwen3Family() {
  return {.model_type = "qwen3",
          .architecture = "Qwen3ForCausalLM",
          .read = ReadQwen3,
          .write = WriteQwen3,
          .map_layer = MapQwen3Layer};
}

HfFamily Qwen3MoeFamily() {
  return {.model_type = "qwen3_moe",
          .architecture = "Qwen3MoeForCausalLM",
          .read = ReadQwen3Moe,
          .write = WriteQwen3Moe,
          .map_layer = MapQwen3MoeLayer};
}

}  // namespace headwise
