// HfFamily: what one model_type of Hugging Face is: its config.json and its tensors. One small file
// a family (llama.cc, qwen3.cc, gpt_oss.cc, muse_glimmer.cc, muse_spark.cc); docs/model_families.md has the facts
// in words. Internal to model/hf.
#ifndef HEADWISE_MODEL_HF_FAMILY_H_
#define HEADWISE_MODEL_HF_FAMILY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/proto/config.pb.h"
#include "model/hf/config_fields.h"
#include "model/hf/tensor_map.h"
#include "nlohmann/json_fwd.hpp"

namespace headwise {

struct HfFamily {
  std::string model_type;    // "qwen3_moe"
  std::string architecture;  // "Qwen3MoeForCausalLM": written into new configurations
  // The section of config.json that describes the decoder; empty: the top level. What the top
  // level then has besides are top_fields, of parts that are not run.
  std::string section = {};
  std::vector<const char*> top_fields = {};
  // Begins the names of the decoder's tensors: "model.".
  std::string prefix = "model.";
  // Beginnings of the names of tensors that belong to the folder and are not run.
  std::vector<std::string> not_run = {};

  // Sets every field of the model but its name. Errors stay in `fields`.
  void (*read)(ConfigFields& fields, ModelConfig* model) = nullptr;
  // The fields that say what `model` is, as far as this family can: read() back and compare. Into
  // the section; *top gets what a new configuration has beside it, where there is a section.
  void (*write)(const ModelConfig& model, nlohmann::json* fields, nlohmann::json* top) = nullptr;
  // The tensors of one layer's norms and feed-forward layer: `ours` is "layers.3.", `theirs`
  // "model.layers.3.".
  void (*map_layer)(const ModelConfig& model, std::int64_t layer, const std::string& ours,
                    const std::string& theirs, TensorMap* map) = nullptr;
};

// The families, in the order in which a model trained here looks for one that can express it.
absl::Span<const HfFamily> HfFamilies();

HfFamily LlamaFamily();
HfFamily MistralFamily();
HfFamily Qwen3Family();
HfFamily Qwen3MoeFamily();
HfFamily GptOssFamily();
HfFamily MuseGlimmerFamily();
HfFamily MuseSparkFamily();

// Every parameter of the model with the family's tensors. The model is valid; packing as it says.
TensorMap MapTensors(const HfFamily& family, const ModelConfig& model);

}  // namespace headwise

#endif  // HEADWISE_MODEL_HF_FAMILY_H_
