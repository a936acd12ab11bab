// gpt_oss: sinks, biases, alternate windows, YaRN, experts with a clamped SwiGLU whose weights are
// stored [in, out] with gate and up in alternate columns.
// Source: configuration_gpt_oss.py, modeling_gpt_oss.py in transformers.
#include <utility>

#include "model/hf/common_fields.h"
#include "model/hf/family.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;

// Of a config.json that names none.
RopeScaling DefaultScaling() {
  RopeScaling scaling;
  scaling.set_kind(ROPE_YARN);
  scaling.set_factor(32);
  scaling.set_original_max_position(4096);
  scaling.set_beta_fast(32);
  scaling.set_beta_slow(1);
  scaling.set_exact_ramp(true);
  return scaling;
}

void ReadLayers(ConfigFields& fields, ModelConfig* model) {
  std::vector<bool> slides(static_cast<std::size_t>(model->num_layers()));
  for (std::size_t l = 0; l < slides.size(); l += 2) slides[l] = true;
  SetLayersOrFail(ReadLayerTypes(fields, std::move(slides), ReadWindow(fields, 128)), "layer_types",
                  fields, model);
}

void Read(ConfigFields& fields, ModelConfig* model) {
  ReadCommon(fields,
             {.vocab_size = 201088,
              .hidden_size = 2880,
              .intermediate_size = 2880,
              .layers = 36,
              .heads = 64,
              .kv_heads = 8,
              .head_dim = 64,
              .max_position = 131072,
              .epsilon = 1e-5,
              .attention_bias = true,
              .rope = {.theta = 150000, .scaling = DefaultScaling()}},
             /*activation=*/"", model);
  model->mutable_attention()->set_sinks(true);
  ReadLayers(fields, model);
  FfnConfig& ffn = *model->mutable_ffn();
  ffn.set_activation(CLAMPED_SWIGLU);
  ffn.set_activation_alpha(fields.Positive("swiglu_alpha", 1.702));
  ffn.set_activation_limit(fields.Positive("swiglu_limit", 7));
  ffn.set_bias(true);
  MoeConfig& moe = *ffn.mutable_moe();
  moe.set_num_experts(CountOf(fields, "num_local_experts", "num_experts", 128));
  moe.set_experts_per_token(CountOf(fields, "num_experts_per_tok", "experts_per_token", 4));
  moe.set_expert_dim(ffn.hidden_dim());
  ffn.set_hidden_dim(0);
  // A softmax over the chosen experts' logits.
  moe.set_score(ROUTER_SOFTMAX);
  moe.set_normalize(true);
  moe.set_scaling_factor(1);
  moe.set_router_bias(true);
  ReadAuxiliaryLoss(fields, &moe);
  // Not read by the class: its activation is fixed, and the context stands in the RoPE parameters.
  fields.Ignore({"hidden_act", "initial_context_length"});
}

void Write(const ModelConfig& model, json* fields, json*) {
  WriteCommon(model, "hidden_act", fields);
  WriteOldRope(model.attention().rope(), /*say_default=*/true, fields);
  const std::int64_t window = OneWindow(model);
  (*fields)["sliding_window"] = window > 0 ? json(window) : json();
  (*fields)["layer_types"] = LayerTypes(model);
  const FfnConfig& ffn = model.ffn();
  (*fields)["swiglu_alpha"] = ffn.activation_alpha();
  (*fields)["swiglu_limit"] = ffn.activation_limit();
  (*fields)["intermediate_size"] = ffn.moe().expert_dim();
  (*fields)["num_local_experts"] = ffn.moe().num_experts();
  (*fields)["num_experts_per_tok"] = ffn.moe().experts_per_token();
  WriteAuxiliaryLoss(ffn.moe(), fields);
}

void MapLayer(const ModelConfig& model, std::int64_t, const std::string& ours,
              const std::string& theirs, TensorMap* map) {
  const MoeConfig& moe = model.ffn().moe();
  const std::int64_t n = model.dim(), e = moe.num_experts(), f = moe.expert_dim();
  map->Same(ours + "ffn_norm.weight", theirs + "post_attention_layernorm.weight", {n});
  map->Same(ours + "ffn.router", theirs + "mlp.router.weight", {e, n});
  map->Same(ours + "ffn.router_bias", theirs + "mlp.router.bias", {e});
  const std::string gate_up = theirs + "mlp.experts.gate_up_proj";
  const std::string down = theirs + "mlp.experts.down_proj";
  map->Transposed(ours + "ffn.w1", gate_up, {e, f, n}, 2 * f, /*first=*/0, /*step=*/2);
  map->Transposed(ours + "ffn.w3", gate_up, {e, f, n}, 2 * f, /*first=*/1, /*step=*/2);
  map->Transposed(ours + "ffn.w2", down, {e, n, f}, n, /*first=*/0, /*step=*/1);
  map->Columns(ours + "ffn.w1_bias", gate_up + "_bias", e, f, 2 * f, /*first=*/0, /*step=*/2);
  map->Columns(ours + "ffn.w3_bias", gate_up + "_bias", e, f, 2 * f, /*first=*/1, /*step=*/2);
  map->Columns(ours + "ffn.w2_bias", down + "_bias", e, n, n, /*first=*/0, /*step=*/1);
}

}  // namespace

HfFamily GptOssFamily() {
  return {.model_type = "gpt_oss",
          .architecture = "GptOssForCausalLM",
          .read = Read,
          .write = Write,
          .map_layer = MapLayer};
}

}  // namespace headwise
