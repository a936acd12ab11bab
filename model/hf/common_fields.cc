#include "model/hf/common_fields.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxLayers = 65536;

// Fields that the classes of transformers have and the decoders do not compute with.
constexpr const char* kNoEffect[] = {
    // What wrote it, and with what.
    "_name_or_path", "architectures", "auto_map", "dtype", "model_type", "torch_dtype",
    "transformers_version", "unsloth_fixed", "unsloth_version",
    // How it is run.
    "_attn_implementation", "_attn_implementation_autoset", "chunk_size_feed_forward",
    "output_attentions", "output_hidden_states", "pretraining_tp", "return_dict", "torchscript",
    "use_bfloat16", "use_cache",
    // Tokens and tasks.
    "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "decoder_start_token_id",
    "eos_token_id", "finetuning_task", "forced_bos_token_id", "forced_eos_token_id", "id2label",
    "label2id", "num_labels", "pad_token_id", "prefix", "problem_type", "sep_token_id",
    "suppress_tokens", "task_specific_params", "tokenizer_class", "unk_token_id"};

// Fields that must say "none", where they are there.
constexpr const char* kDropouts[] = {"attention_dropout",  "attn_pdrop",     "dropout",
                                     "embd_pdrop",         "hidden_dropout", "resid_pdrop",
                                     "router_jitter_noise"};

void ReadActivation(ConfigFields& fields, const char* field) {
  if (*field == '\0') return;
  const std::string activation = fields.Word(field, "silu");
  if (activation == "silu" || activation == "swish") return;
  fields.Fail(field, absl::StrCat("'", absl::CEscape(activation.substr(0, 40)),
                                  "' is not supported; expected silu"));
}

void ReadHeads(ConfigFields& fields, const ClassDefaults& defaults, ModelConfig* model) {
  AttentionConfig& a = *model->mutable_attention();
  a.set_num_query_heads(fields.Count("num_attention_heads", defaults.heads));
  const std::int64_t heads = a.num_query_heads();
  const bool has_kv = fields.Has("num_key_value_heads");
  a.set_num_kv_heads(fields.MaybeCount("num_key_value_heads")
                         .value_or(has_kv || defaults.kv_heads == 0 ? heads : defaults.kv_heads));
  if (heads % a.num_kv_heads() != 0) {
    fields.Fail("num_key_value_heads",
                absl::StrCat(a.num_kv_heads(), " does not divide ", "num_attention_heads ", heads));
  }
  const bool has_dim = fields.Has("head_dim");
  if (const auto head_dim = fields.MaybeCount("head_dim"); head_dim.has_value()) {
    a.set_head_dim(*head_dim);
  } else if (!has_dim && defaults.head_dim != 0) {
    a.set_head_dim(defaults.head_dim);
  } else {
    if (model->dim() % heads != 0) {
      fields.Fail("num_attention_heads", absl::StrCat(heads, " does not divide hidden_size ",
                                                      model->dim(), ", and there is no head_dim"));
    }
    a.set_head_dim(model->dim() / heads);
  }
}

}  // namespace

NormConfig PlainNorm(double epsilon) {
  NormConfig norm;
  norm.set_style(RMS);
  norm.set_epsilon(epsilon);
  norm.set_initial_weight(1);
  return norm;
}

void RefuseQuantised(ConfigFields& fields) {
  if (fields.HasValue("quantization_config") || fields.HasValue("compression_config")) {
    fields.Fail(
        fields.HasValue("quantization_config") ? "quantization_config" : "compression_config",
        "quantised weights are not supported; expected F32, BF16 or F16; try to load it in "
        "transformers with dequantisation, and save that");
  }
}

void IgnoreNoEffect(ConfigFields& fields) { fields.Ignore(kNoEffect); }

void ReadCommon(ConfigFields& fields, const ClassDefaults& defaults, const char* activation,
                ModelConfig* model) {
  RefuseQuantised(fields);
  model->set_vocab_size(fields.Count("vocab_size", defaults.vocab_size));
  model->set_dim(fields.Count("hidden_size", defaults.hidden_size));
  model->set_num_layers(fields.Count("num_hidden_layers", defaults.layers));
  if (model->num_layers() > kMaxLayers) {
    fields.Fail("num_hidden_layers",
                absl::StrCat("expected at most ", kMaxLayers, ", found ", model->num_layers()));
    model->set_num_layers(1);
  }
  ReadHeads(fields, defaults, model);
  const bool bias = fields.Flag("attention_bias", defaults.attention_bias);
  model->mutable_attention()->set_qkv_bias(bias);
  model->mutable_attention()->set_output_bias(bias);
  model->set_max_sequence_length(fields.Count("max_position_embeddings", defaults.max_position));
  ReadRope(fields, defaults.rope, model->max_sequence_length(),
           model->mutable_attention()->mutable_rope());
  model->mutable_ffn()->set_hidden_dim(
      fields.Count("intermediate_size", defaults.intermediate_size));
  ReadActivation(fields, activation);
  const NormConfig norm = PlainNorm(fields.Number("rms_norm_eps", defaults.epsilon));
  *model->mutable_attention_norm() = norm;
  *model->mutable_ffn_norm() = norm;
  *model->mutable_final_norm() = norm;
  model->set_tied_head(fields.Flag("tie_word_embeddings", false));
  const double std = fields.Number("initializer_range", 0.02);
  model->mutable_init()->set_embedding_std(std);
  model->mutable_init()->set_linear_std(std);
  model->mutable_init()->set_head_std(std);

  for (const char* name : kDropouts) fields.Expect(name, 0, "there is no dropout here");
  for (const char* name : {"is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"}) {
    fields.Expect(name, 0, "these models are decoders only");
  }
  fields.Expect("attn_logit_softcapping", 0, "no class of these families reads it");
  IgnoreNoEffect(fields);
}

void WriteCommon(const ModelConfig& model, const char* activation, json* fields) {
  const AttentionConfig& a = model.attention();
  (*fields)["vocab_size"] = model.vocab_size();
  (*fields)["hidden_size"] = model.dim();
  (*fields)["num_hidden_layers"] = model.num_layers();
  (*fields)["num_attention_heads"] = a.num_query_heads();
  (*fields)["num_key_value_heads"] = a.num_kv_heads();
  (*fields)["head_dim"] = a.head_dim();
  (*fields)["attention_bias"] = a.qkv_bias();
  (*fields)["attention_dropout"] = 0.0;
  (*fields)["max_position_embeddings"] = model.max_sequence_length();
  (*fields)["intermediate_size"] = model.ffn().hidden_dim();
  (*fields)["rms_norm_eps"] = model.attention_norm().epsilon();
  (*fields)["tie_word_embeddings"] = model.tied_head();
  (*fields)["initializer_range"] = model.init().linear_std();
  // No token ends a text: the classes' own defaults name tokens of their tokenizers.
  for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    (*fields)[token] = nullptr;
  }
  if (*activation != '\0') (*fields)[activation] = "silu";
}

void SetLayersOrFail(const std::vector<LayerKind>& layers, const char* field, ConfigFields& fields,
                     ModelConfig* model) {
  const absl::Status status = SetLayers(layers, model->mutable_attention());
  if (!status.ok()) fields.Fail(field, std::string(status.message()));
}

std::int64_t ReadWindow(ConfigFields& fields, std::int64_t absent) {
  if (!fields.Has("sliding_window")) return absent;
  return fields.MaybeCount("sliding_window").value_or(0);
}

std::vector<LayerKind> ReadLayerTypes(ConfigFields& fields, std::vector<bool> slides,
                                      std::int64_t window) {
  if (const auto types = fields.Words("layer_types"); types.has_value()) {
    if (types->size() != slides.size()) {
      fields.Fail("layer_types", absl::StrCat("expected num_hidden_layers = ", slides.size(),
                                              " entries, found ", types->size()));
    }
    for (std::size_t l = 0; l < std::min(slides.size(), types->size()); ++l) {
      const std::string& type = (*types)[l];
      slides[l] = type == "sliding_attention";
      if (type != "sliding_attention" && type != "full_attention") {
        fields.Fail(
            absl::StrCat("layer_types[", l, "]"),
            absl::StrCat("'", absl::CEscape(type.substr(0, 40)),
                         "' is not supported; expected full_attention or sliding_attention"));
      }
    }
  }
  std::vector<LayerKind> layers(slides.size());
  for (std::size_t l = 0; l < slides.size(); ++l) {
    if (slides[l] && window == 0) {
      fields.Fail("sliding_window",
                  absl::StrCat("none, but layer ", l, " is sliding_attention; expected a window"));
    }
    layers[l].window = slides[l] ? window : 0;
  }
  return layers;
}

std::int64_t CountOf(ConfigFields& fields, const char* name, const char* other_name,
                     std::int64_t absent) {
  const auto one = fields.MaybeCount(name), other = fields.MaybeCount(other_name);
  if (one.has_value() && other.has_value() && *one != *other) {
    fields.Fail(other_name, absl::StrCat("expected ", name, " = ", *one, ", found ", *other));
  }
  return one.value_or(other.value_or(absent));
}

void ReadAuxiliaryLoss(ConfigFields& fields, MoeConfig* moe) {
  const double weight = fields.Number("router_aux_loss_coef", 0.001);
  if (!fields.Flag("output_router_logits", false)) return;
  moe->set_balancing(BALANCING_AUXILIARY_LOSS);
  moe->set_auxiliary_loss_weight(weight);
}

void WriteAuxiliaryLoss(const MoeConfig& moe, json* fields) {
  (*fields)["output_router_logits"] = moe.balancing() == BALANCING_AUXILIARY_LOSS;
  // Where it is not used, what the classes have.
  (*fields)["router_aux_loss_coef"] =
      moe.balancing() == BALANCING_AUXILIARY_LOSS ? moe.auxiliary_loss_weight() : 0.001;
}

json LayerTypes(const ModelConfig& model) {
  json types = json::array();
  for (const LayerKind& layer : LayersOf(model)) {
    types.push_back(layer.window > 0 ? "sliding_attention" : "full_attention");
  }
  return types;
}

std::int64_t OneWindow(const ModelConfig& model) {
  std::int64_t window = 0;
  for (const LayerKind& layer : LayersOf(model)) {
    if (layer.window > 0) window = layer.window;
  }
  return window;
}

void MapDenseFfn(const ModelConfig& model, const std::string& ours, const std::string& theirs,
                 TensorMap* map) {
  const std::int64_t n = model.dim(), f = model.ffn().hidden_dim();
  const auto add = [&](const char* part, const char* projection, std::int64_t out,
                       std::int64_t in) {
    map->Same(ours + "ffn." + part, theirs + "mlp." + projection + ".weight", {out, in});
    if (!model.ffn().bias()) return;
    map->Same(ours + "ffn." + part + "_bias", theirs + "mlp." + projection + ".bias", {out});
  };
  add("w1", "gate_proj", f, n);
  add("w3", "up_proj", f, n);
  add("w2", "down_proj", n, f);
}

}  // namespace headwise
