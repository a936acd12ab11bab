// muse_spark: the Muse decoder with experts and residual gates under text_config; towers for vision
// and audio are carried and not run.
// Source: configuration_muse_spark.py, modeling_muse_spark.py in transformers.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/config.h"
#include "model/hf/common_fields.h"
#include "model/hf/family.h"
#include "model/hf/muse_fields.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;

constexpr char kActivation[] = "hidden_act";

NormConfig Norm(NormStyle style, double epsilon) {
  NormConfig norm = GainCentredNorm(epsilon);
  norm.set_style(style);
  if (style == RMS_SCALELESS) norm.clear_centre();
  return norm;
}

// The first layers may be dense, the others have experts.
std::int64_t ReadDenseLayers(ConfigFields& fields, std::int64_t layers) {
  const auto types = fields.Words("mlp_layer_types");
  if (!types.has_value()) return 0;
  if (static_cast<std::int64_t>(types->size()) != layers) {
    fields.Fail("mlp_layer_types", absl::StrCat("expected num_hidden_layers = ", layers,
                                                " entries, found ", types->size()));
    return 0;
  }
  std::int64_t dense = 0;
  for (std::int64_t l = 0; l < layers; ++l) {
    const std::string& type = (*types)[static_cast<std::size_t>(l)];
    const std::string field = absl::StrCat("mlp_layer_types[", l, "]");
    if (type != "dense" && type != "sparse") {
      fields.Fail(field, absl::StrCat("expected dense or sparse, found ", type));
    } else if (type == "dense" && dense < l) {
      fields.Fail(field,
                  "is dense behind a sparse layer; expected dense layers at the beginning only");
    } else if (type == "dense") {
      ++dense;
    }
  }
  if (dense == layers) fields.Fail("mlp_layer_types", "leaves no layer experts; expected some");
  return dense < layers ? dense : 0;
}

void ReadExperts(ConfigFields& fields, double epsilon, double post_epsilon, ModelConfig* model) {
  MoeConfig& moe = *model->mutable_ffn()->mutable_moe();
  moe.set_num_experts(CountOf(fields, "num_local_experts", "num_experts", 256));
  moe.set_experts_per_token(fields.Count("num_experts_per_tok", 8));
  moe.set_expert_dim(fields.Count("moe_intermediate_size", 4096));
  moe.set_expert_width(fields.Count("moe_hidden_size", 4096));
  moe.set_score(ROUTER_SIGMOID);
  moe.set_normalize(true);
  moe.set_scaling_factor(fields.Positive("routed_scaling_factor", 1));
  moe.set_router_multiplier(model->logit_multiplier());
  moe.set_balancing(BALANCING_BIAS);
  *moe.mutable_pre_expert_norm() = GainCentredNorm(epsilon);
  *moe.mutable_post_expert_norm() = Norm(RMS_INPUT_SCALED, post_epsilon);
  moe.set_dense_layers(ReadDenseLayers(fields, model->num_layers()));
  if (moe.dense_layers() == 0) model->mutable_ffn()->set_hidden_dim(0);
  fields.Ignore({"output_router_logits"});  // no loss comes of them
}

void Read(ConfigFields& fields, ModelConfig* model) {
  if (const std::string type = fields.Word("model_type", "muse_spark_text");
      type != "muse_spark_text") {
    fields.Fail("model_type",
                absl::StrCat("expected muse_spark_text, found ", fields.Show("model_type")));
  }
  ReadCommon(fields,
             {.vocab_size = 202048,
              .hidden_size = 8192,
              .intermediate_size = 16384,
              .layers = 62,
              .heads = 128,
              .kv_heads = 16,
              .head_dim = 64,
              .max_position = 1048576,
              .epsilon = 1e-5,
              .rope = {.theta = 500000}},
             kActivation, model);
  if (model->attention().qkv_bias()) {
    fields.Fail("attention_bias", "true is not supported in this family; expected false");
  }
  if (model->tied_head()) {
    fields.Fail("tie_word_embeddings", "this family's head is its own; expected false");
  }
  const double epsilon = model->final_norm().epsilon();
  const double post_epsilon = fields.Number("post_norm_eps", 1e-8);
  *model->mutable_embedding_norm() = Norm(RMS_SCALELESS, epsilon);
  *model->mutable_attention_norm() = GainCentredNorm(epsilon);
  *model->mutable_post_attention_norm() = Norm(RMS_SCALELESS, post_epsilon);
  *model->mutable_ffn_norm() = GainCentredNorm(epsilon);
  *model->mutable_post_ffn_norm() = Norm(RMS_INPUT_SCALED, post_epsilon);
  AttentionConfig& a = *model->mutable_attention();
  a.set_head_norm(HEAD_NORM_SCALELESS);
  a.set_head_norm_epsilon(epsilon);
  a.set_query_scale(fields.Positive("qk_scale_factor", 5.4730064863875));
  a.set_output_gate(true);
  a.set_output_norm_epsilon(epsilon);
  ReadMuseLayers(fields, model);
  model->set_logit_multiplier(fields.Positive("output_multiplier", 0.1767766952966369));
  model->set_logit_cap(fields.Positive("final_logit_softcapping", 20));
  model->set_residual_gate_temperature(fields.Positive("residual_gate_temperature", 0.3));
  ReadExperts(fields, epsilon, post_epsilon, model);
}

void Write(const ModelConfig& model, json* fields, json* top) {
  WriteCommon(model, kActivation, fields);
  WriteNewRope(model.attention().rope(), fields);
  (*fields)["model_type"] = "muse_spark_text";
  (*fields)["post_norm_eps"] = model.post_attention_norm().epsilon();
  (*fields)["qk_scale_factor"] = model.attention().query_scale();
  (*fields)["output_multiplier"] = model.logit_multiplier();
  (*fields)["final_logit_softcapping"] = model.logit_cap();
  (*fields)["residual_gate_temperature"] = model.residual_gate_temperature();
  WriteMuseLayers(model, fields);
  const MoeConfig& moe = model.ffn().moe();
  (*fields)["num_local_experts"] = moe.num_experts();
  (*fields)["num_experts_per_tok"] = moe.experts_per_token();
  (*fields)["moe_intermediate_size"] = moe.expert_dim();
  (*fields)["moe_hidden_size"] = moe.expert_width();
  (*fields)["routed_scaling_factor"] = moe.scaling_factor();
  if (moe.dense_layers() == 0) (*fields)["intermediate_size"] = moe.expert_dim();
  json types = json::array();
  for (std::int64_t l = 0; l < model.num_layers(); ++l) {
    types.push_back(LayerHasExperts(model, l) ? "sparse" : "dense");
  }
  (*fields)["mlp_layer_types"] = types;
  (*top)["vision_config"] = SmallestVisionTower("muse_spark_vision");
  (*top)["audio_config"] = {{"model_type", "muse_spark_audio"},
                            {"hidden_sizes", {8}},
                            {"depths", {1}},
                            {"num_hidden_layers", 1},
                            {"patch_sizes", {2}},
                            {"mlp_ratio", 1.0},
                            {"conv_kernel_size", 3},
                            {"out_hidden_size", model.dim()}};
  (*top)["out_hidden_size"] = 32;
  (*top)["projector_hidden_size"] = 8;
}

void MapExperts(const ModelConfig& model, const std::string& ours, const std::string& theirs,
                TensorMap* map) {
  const MoeConfig& moe = model.ffn().moe();
  const std::int64_t n = model.dim(), m = moe.expert_width(), e = moe.num_experts();
  const std::int64_t f = moe.expert_dim();
  map->Same(ours + "router", theirs + "gate.weight", {e, n});
  map->Same(ours + "balancing_bias", theirs + "gate.e_score_correction_bias", {e});
  map->Same(ours + "pre_expert_proj", theirs + "pre_expert_proj.weight", {m, n});
  map->Same(ours + "pre_expert_norm.weight", theirs + "pre_expert_norm.weight", {m});
  map->Rows(ours + "w1", theirs + "experts.gate_up_proj", {e, f, m}, 2 * f, /*first=*/0);
  map->Rows(ours + "w3", theirs + "experts.gate_up_proj", {e, f, m}, 2 * f, /*first=*/f);
  map->Same(ours + "w2", theirs + "experts.down_proj", {e, m, f});
  map->Same(ours + "post_expert_norm.weight", theirs + "experts.post_expert_norm.weight", {m});
  map->Same(ours + "post_expert_proj", theirs + "post_expert_proj.weight", {n, m});
}

void MapLayer(const ModelConfig& model, std::int64_t layer, const std::string& ours,
              const std::string& theirs, TensorMap* map) {
  const Shape norm = {model.dim()};
  map->Same(ours + "attention_residual_gate", theirs + "post_attention_residual_gate.gate", norm);
  map->Same(ours + "ffn_norm.weight", theirs + "pre_feedforward_layernorm.weight", norm);
  if (LayerHasExperts(model, layer)) {
    MapExperts(model, ours + "ffn.", theirs + "mlp.", map);
  } else {
    MapDenseFfn(model, ours, theirs, map);
  }
  map->Same(ours + "post_ffn_norm.weight", theirs + "post_feedforward_layernorm.weight", norm);
  map->Same(ours + "ffn_residual_gate", theirs + "post_feedforward_residual_gate.gate", norm);
}

}  // namespace

HfFamily MuseSparkFamily() {
  return {.model_type = "muse_spark",
          .architecture = "MuseSparkForConditionalGeneration",
          .section = "text_config",
          .top_fields = {"vision_config", "audio_config", "image_token_id", "video_token_id",
                         "audio_token_id", "out_hidden_size", "projector_hidden_size",
                         "projector_hidden_act"},
          .prefix = "model.language_model.",
          .not_run = {"model.vision_tower.", "model.vision_adapter.", "model.vision_projection.",
                      "model.audio_tower."},
          .read = Read,
          .write = Write,
          .map_layer = MapLayer};
}

}  // namespace headwise
