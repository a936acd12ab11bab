#include "model/test_presets.h"

#include "core/base/check.h"
#include "model/presets/presets.h"

namespace headwise {

ModelConfig SmallPreset(const std::string& name) {
  const auto preset = LoadPreset(name);
  HW_CHECK(preset.ok()) << preset.status();
  ModelConfig config = preset->model();
  config.set_num_layers(2);
  config.set_dim(32);
  config.set_vocab_size(32);
  AttentionConfig& attention = *config.mutable_attention();
  attention.set_head_dim(4);
  attention.mutable_rope()->set_rotary_dim(4);
  for (auto& window : *attention.mutable_window_pattern()) {
    if (window > 0) window = 5;
  }
  FfnConfig& ffn = *config.mutable_ffn();
  if (ffn.hidden_dim() > 0) ffn.set_hidden_dim(24);
  if (!ffn.has_moe()) return config;
  MoeConfig& moe = *ffn.mutable_moe();
  moe.set_expert_dim(8);
  if (moe.expert_width() > 0) moe.set_expert_width(16);
  return config;
}

}  // namespace headwise
