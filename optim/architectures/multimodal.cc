// Models of several parts, each with its own section of the configuration: the prefixes of their
// tensors' names, of old and new checkpoints, and whose rule applies.
//
// Sources, in transformers: modeling_<model_type>.py for the parts' names, conversion_mapping.py for
// how checkpoints on disk call them, configuration_<model_type>.py for the sections.
#include "optim/architectures/families.h"

namespace headwise {
namespace {

// A text model and a vision tower whose sections name their model_type.
ArchitectureRule TextAndVision(const char* model_type, const char* text_type = nullptr,
                               const char* vision_type = nullptr) {
  return {model_type,
          {},
          {},
          {{{"model.language_model.", "language_model.model.", "language_model."},
            "text_config",
            text_type},
           {{"model.vision_tower.", "vision_tower.", "model.vision_model.", "vision_model."},
            "vision_config",
            vision_type}}};
}

// Qwen's: the older ones have the text model's fields at the top.
ArchitectureRule QwenVl(const char* model_type, const char* text_type, const char* vision_type,
                        bool may_be_flat) {
  return {model_type,
          {},
          {},
          {{{"model.language_model.", "language_model.model.", "model."},
            "text_config",
            text_type,
            may_be_flat},
           {{"model.visual.", "visual."}, "vision_config", vision_type}}};
}

}  // namespace

std::vector<ArchitectureRule> MultimodalRules() {
  return {
      TextAndVision("gemma3", "gemma3_text", "siglip_vision_model"),
      TextAndVision("kimi_k25", "deepseek_v3", "kimi_k25_vision"),
      TextAndVision("llama4", "llama4_text", "llama4_vision_model"),
      TextAndVision("llava"),
      TextAndVision("llava_next"),
      TextAndVision("mistral3"),
      TextAndVision("mllama", "mllama_text_model", "mllama_vision_model"),
      TextAndVision("muse_glimmer", "muse_glimmer_text", "muse_glimmer_vision"),
      TextAndVision("muse_spark", "muse_spark_text", "muse_spark_vision"),
      TextAndVision("paligemma"),
      QwenVl("qwen2_vl", "qwen2_vl_text", "qwen2_vl_vision", true),
      QwenVl("qwen2_5_vl", "qwen2_5_vl_text", "qwen2_5_vl_vision", true),
      QwenVl("qwen3_vl", "qwen3_vl_text", "qwen3_vl_vision", false),
      QwenVl("qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_vl_vision", false),
      QwenVl("qwen3_5", "qwen3_5_text", "qwen3_5_vision", false),
      QwenVl("qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_vision", false),
  };
}

}  // namespace headwise
