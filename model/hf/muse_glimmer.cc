// muse_glimmer: the Muse decoder under text_config, with a vision tower that is carried and not
// run.
// Source: configuration_muse_glimmer.py, modeling_muse_glimmer.py in transformers.
#include "absl/strings/str_cat.h"
#include "model/hf/common_fields.h"
#include "model/hf/family.h"
#include "model/hf/muse_fields.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;

constexpr char kActivation[] = "hidden_activation";

void Read(ConfigFields& fields, ModelConfig* model) {
  if (const std::string type = fields.Word("model_type", "muse_glimmer_text");
      type != "muse_glimmer_text") {
    fields.Fail("model_type",
                absl::StrCat("expected muse_glimmer_text, found ", fields.Show("model_type")));
  }
  // An early form, whose qk_scale_factor is the square root of head_dim times that of today.
  for (const char* name : {"use_qk_norm", "use_attn_output_gate", "no_rope_layers",
                           "normalize_tok_embeddings", "output_soft_cap_temp"}) {
    if (fields.Has(name)) {
      fields.Fail(name,
                  "is of an early form of this family, whose qk_scale_factor means another "
                  "number; expected the form that transformers reads");
    }
  }
  ReadCommon(fields,
             {.vocab_size = 202048,
              .hidden_size = 6656,
              .intermediate_size = 19968,
              .layers = 52,
              .heads = 32,
              .kv_heads = 2,
              .head_dim = 128,
              .max_position = 131072,
              .epsilon = 1e-5},
             kActivation, model);
  const double epsilon = model->final_norm().epsilon();
  const NormConfig post = GainCentredNorm(fields.Number("post_norm_eps", 1e-8));
  model->mutable_embedding_norm()->set_style(RMS_SCALELESS);
  model->mutable_embedding_norm()->set_epsilon(epsilon);
  *model->mutable_attention_norm() = GainCentredNorm(epsilon);
  *model->mutable_post_attention_norm() = post;
  *model->mutable_ffn_norm() = GainCentredNorm(epsilon);
  *model->mutable_post_ffn_norm() = post;
  AttentionConfig& a = *model->mutable_attention();
  a.set_head_norm(HEAD_NORM_SCALELESS);
  a.set_head_norm_epsilon(epsilon);
  a.set_query_scale(fields.Positive("qk_scale_factor", 3.87));
  a.set_output_gate(true);
  ReadMuseLayers(fields, model);
  model->set_logit_multiplier(fields.Positive("output_multiplier", 0.19611613513818404));
  model->set_logit_cap(fields.Positive("final_logit_softcapping", 20));
}

void Write(const ModelConfig& model, json* fields, json* top) {
  WriteCommon(model, kActivation, fields);
  WriteNewRope(model.attention().rope(), fields);
  (*fields)["model_type"] = "muse_glimmer_text";
  (*fields)["post_norm_eps"] = model.post_attention_norm().epsilon();
  (*fields)["qk_scale_factor"] = model.attention().query_scale();
  (*fields)["output_multiplier"] = model.logit_multiplier();
  (*fields)["final_logit_softcapping"] = model.logit_cap();
  WriteMuseLayers(model, fields);
  (*top)["vision_config"] = SmallestVisionTower("muse_glimmer_vision");
  (*top)["out_hidden_size"] = 32;
  (*top)["projector_hidden_size"] = 8;
}

void MapLayer(const ModelConfig& model, std::int64_t, const std::string& ours,
              const std::string& theirs, TensorMap* map) {
  const Shape norm = {model.dim()};
  map->Same(ours + "post_attention_norm.weight", theirs + "post_attention_layernorm.weight", norm);
  map->Same(ours + "ffn_norm.weight", theirs + "pre_feedforward_layernorm.weight", norm);
  map->Same(ours + "post_ffn_norm.weight", theirs + "post_feedforward_layernorm.weight", norm);
  MapDenseFfn(model, ours, theirs, map);
}

}  // namespace

HfFamily MuseGlimmerFamily() {
  return {.model_type = "muse_glimmer",
          .architecture = "MuseGlimmerForConditionalGeneration",
          .section = "text_config",
          .top_fields = {"vision_config", "image_token_id", "video_token_id", "out_hidden_size",
                         "projector_hidden_size", "projector_hidden_act"},
          .prefix = "model.language_model.",
          .not_run = {"model.vision_tower.", "model.vision_adapter.", "model.vision_projection."},
          .read = Read,
          .write = Write,
          .map_layer = MapLayer};
}

}  // namespace headwise
