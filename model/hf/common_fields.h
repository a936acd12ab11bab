// common_fields: what the families' configurations have in common. Internal to model/hf.
#ifndef HEADWISE_MODEL_HF_COMMON_FIELDS_H_
#define HEADWISE_MODEL_HF_COMMON_FIELDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/proto/config.pb.h"
#include "model/hf/config_fields.h"
#include "model/hf/layer_pattern.h"
#include "model/hf/rope_fields.h"
#include "model/hf/tensor_map.h"
#include "nlohmann/json_fwd.hpp"

namespace headwise {

// The defaults of a family's configuration class.
struct ClassDefaults {
  std::int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0;
  std::int64_t layers = 0, heads = 0;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden_size / heads
  std::int64_t max_position = 0;
  double epsilon = 0;
  bool attention_bias = false;
  RopeDefaults rope = {};
};

// Sizes, epsilons of the attention, ffn and final norms (as RMS with a weight), RoPE, biases of
// attention, tied head; refuses dropout and quantised weights; ignores what changes no number.
// `activation` names the field of the activation, empty if the family reads none.
void ReadCommon(ConfigFields& fields, const ClassDefaults& defaults, const char* activation,
                ModelConfig* model);

// The same fields; not those of RoPE.
void WriteCommon(const ModelConfig& model, const char* activation, nlohmann::json* fields);

// Sets the model's layers; `field` is blamed for an impossible pattern.
void SetLayersOrFail(const std::vector<LayerKind>& layers, const char* field, ConfigFields& fields,
                     ModelConfig* model);

// An error if the weights are quantised.
void RefuseQuantised(ConfigFields& fields);
// Fields that change no number, common to every family and section.
void IgnoreNoEffect(ConfigFields& fields);

// sliding_window; 0 if it is null.
std::int64_t ReadWindow(ConfigFields& fields, std::int64_t absent);
// Layers with `window` where layer_types says that they slide, or where it is absent or null,
// where `slides` does. An error if a layer slides and window is 0.
std::vector<LayerKind> ReadLayerTypes(ConfigFields& fields, std::vector<bool> slides,
                                      std::int64_t window);
// layer_types of a model whose layers have a window or none.
nlohmann::json LayerTypes(const ModelConfig& model);
// The one window that the model's layers have; 0 if all are global.
std::int64_t OneWindow(const ModelConfig& model);

// A count that is known under two names.
std::int64_t CountOf(ConfigFields& fields, const char* name, const char* other_name,
                     std::int64_t absent);
// output_router_logits and router_aux_loss_coef.
void ReadAuxiliaryLoss(ConfigFields& fields, MoeConfig* moe);
void WriteAuxiliaryLoss(const MoeConfig& moe, nlohmann::json* fields);

// RMS with a weight.
NormConfig PlainNorm(double epsilon);

// A dense feed-forward layer: mlp.gate_proj, up_proj, down_proj.
void MapDenseFfn(const ModelConfig& model, const std::string& ours, const std::string& theirs,
                 TensorMap* map);

}  // namespace headwise

#endif  // HEADWISE_MODEL_HF_COMMON_FIELDS_H_
