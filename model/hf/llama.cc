// llama, mistral: the plain decoders. Mistral slides on every layer.
// Source: configuration_llama.py, modeling_llama.py and those of mistral in transformers.
#include <cstdint>
#include <string>
#include <vector>

#include "model/hf/common_fields.h"
#include "model/hf/family.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

constexpr char kActivation[] = "hidden_act";

void ReadLlama(ConfigFields& fields, ModelConfig* model) {
  ReadCommon(fields,
             {.vocab_size = 32000,
              .hidden_size = 4096,
              .intermediate_size = 11008,
              .layers = 32,
              .heads = 32,
              .max_position = 2048,
              .epsilon = 1e-6},
             kActivation, model);
  model->mutable_ffn()->set_bias(fields.Flag("mlp_bias", false));
  // The class does not read it; a folder that says so wants another model.
  fields.Refuse("sliding_window", "Llama does not have; expected model_type mistral");
}

void WriteLlama(const ModelConfig& model, nlohmann::json* fields, nlohmann::json*) {
  WriteCommon(model, kActivation, fields);
  WriteOldRope(model.attention().rope(), /*say_default=*/false, fields);
  (*fields)["mlp_bias"] = model.ffn().bias();
}

void ReadMistral(ConfigFields& fields, ModelConfig* model) {
  ReadCommon(fields,
             {.vocab_size = 32000,
              .hidden_size = 4096,
              .intermediate_size = 14336,
              .layers = 32,
              .heads = 32,
              .kv_heads = 8,
              .max_position = 131072,
              .epsilon = 1e-6},
             kActivation, model);
  fields.Expect("attention_bias", 0, "Mistral has no biases");
  const std::int64_t window = ReadWindow(fields, 4096);
  const auto layers = static_cast<std::size_t>(model->num_layers());
  SetLayersOrFail(std::vector<LayerKind>(layers, {.window = window}), "sliding_window", fields,
                  model);
  fields.Refuse("layer_types", "Mistral does not read: its layers are all alike");
}

void WriteMistral(const ModelConfig& model, nlohmann::json* fields, nlohmann::json*) {
  WriteCommon(model, kActivation, fields);
  WriteOldRope(model.attention().rope(), /*say_default=*/false, fields);
  fields->erase("attention_bias");
  const std::int64_t window = OneWindow(model);
  (*fields)["sliding_window"] = window > 0 ? nlohmann::json(window) : nlohmann::json();
}

void MapLayer(const ModelConfig& model, std::int64_t, const std::string& ours,
              const std::string& theirs, TensorMap* map) {
  map->Same(ours + "ffn_norm.weight", theirs + "post_attention_layernorm.weight", {model.dim()});
  MapDenseFfn(model, ours, theirs, map);
}

}  // namespace

HfFamily LlamaFamily() {
  return {.model_type = "llama",
          .architecture = "LlamaForCausalLM",
          .read = ReadLlama,
          .write = WriteLlama,
          .map_layer = MapLayer};
}

HfFamily MistralFamily() {
  return {.model_type = "mistral",
          .architecture = "MistralForCausalLM",
          .read = ReadMistral,
          .write = WriteMistral,
          .map_layer = MapLayer};
}

}  // namespace headwise
