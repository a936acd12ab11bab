// muse_glimmer: the Muse decoder under text_config, with a vision tower that is carried and not
// run.
// Source: configuration_muse_glimmer.py, modeling_muse_glimmer.py in transformers.
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/hf/common_fields.h"
#include "model/hf/family.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;

constexpr char kActivation[] = "hidden_activation";

NormConfig GainCentred(double epsilon) {
  NormConfig norm;
  norm.set_style(RMS_GAIN_CENTERED);
  norm.set_epsilon(epsilon);
  norm.set_centre(1);
  return norm;
}

// Which layers rotate: those whose theta is not 0. Every other theta is that of all.
std::vector<bool> ReadRotates(ConfigFields& fields, const ModelConfig& model) {
  const std::int64_t n = model.num_layers();
  std::vector<bool> rotates(static_cast<std::size_t>(n));
  for (std::int64_t l = 0; l < n; ++l) {
    rotates[static_cast<std::size_t>(l)] = (n - 1 - l) % 4 != 0;
  }
  const auto thetas = fields.Numbers("layer_rope_theta");
  if (!thetas.has_value()) return rotates;
  if (thetas->size() != rotates.size()) {
    fields.Fail("layer_rope_theta", absl::StrCat("expected num_hidden_layers = ", n,
                                                 " entries, found ", thetas->size()));
    return rotates;
  }
  const double theta = model.attention().rope().theta();
  for (std::size_t l = 0; l < rotates.size(); ++l) {
    rotates[l] = (*thetas)[l] != 0;
    if (rotates[l] && (*thetas)[l] != theta) {
      fields.Fail(absl::StrCat("layer_rope_theta[", l, "]"),
                  absl::StrCat((*thetas)[l], " is not supported; expected 0, or the rope_theta ",
                               "of all layers, ", theta));
    }
  }
  return rotates;
}

void ReadLayers(ConfigFields& fields, ModelConfig* model) {
  const std::int64_t n = model->num_layers();
  std::vector<bool> slides(static_cast<std::size_t>(n));
  for (std::int64_t l = 0; l < n; ++l) {
    slides[static_cast<std::size_t>(l)] = (n - 1 - l) % 4 != 0;
  }
  std::vector<LayerKind> layers =
      ReadLayerTypes(fields, std::move(slides), ReadWindow(fields, 2048));
  const std::vector<bool> rotates = ReadRotates(fields, *model);
  for (std::size_t l = 0; l < layers.size(); ++l) layers[l].rotates = rotates[l];
  SetLayersOrFail(layers, "layer_rope_theta", fields, model);
}

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
  const NormConfig post = GainCentred(fields.Number("post_norm_eps", 1e-8));
  model->mutable_embedding_norm()->set_style(RMS_SCALELESS);
  model->mutable_embedding_norm()->set_epsilon(epsilon);
  *model->mutable_attention_norm() = GainCentred(epsilon);
  *model->mutable_post_attention_norm() = post;
  *model->mutable_ffn_norm() = GainCentred(epsilon);
  *model->mutable_post_ffn_norm() = post;
  AttentionConfig& a = *model->mutable_attention();
  a.set_head_norm(HEAD_NORM_SCALELESS);
  a.set_head_norm_epsilon(epsilon);
  a.set_query_scale(fields.Positive("qk_scale_factor", 3.87));
  a.set_output_gate(true);
  ReadLayers(fields, model);
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
  (*fields)["layer_types"] = LayerTypes(model);
  const std::int64_t window = OneWindow(model);
  (*fields)["sliding_window"] = window > 0 ? json(window) : json();
  json thetas = json::array();
  for (const LayerKind& layer : LayersOf(model)) {
    thetas.push_back(layer.rotates ? model.attention().rope().theta() : 0.0);
  }
  (*fields)["layer_rope_theta"] = thetas;
  // transformers always builds a vision tower; one without weights should cost nothing.
  (*top)["vision_config"] = {{"model_type", "muse_glimmer_vision"},
                             {"hidden_size", 8},
                             {"intermediate_size", 8},
                             {"num_attention_heads", 1},
                             {"num_hidden_layers", 1},
                             {"patch_size", 2},
                             {"pos_emb_height", 2},
                             {"pos_emb_width", 2},
                             {"max_position_embeddings", 4}};
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
