// muse_fields: what the configurations of the Muse families have in common. Internal to model/hf.
#ifndef HEADWISE_MODEL_HF_MUSE_FIELDS_H_
#define HEADWISE_MODEL_HF_MUSE_FIELDS_H_

#include "core/proto/config.pb.h"
#include "model/hf/config_fields.h"
#include "nlohmann/json_fwd.hpp"

namespace headwise {

// Gains around 1.
NormConfig GainCentredNorm(double epsilon);

// layer_types, sliding_window and layer_rope_theta; without them every fourth layer, counted from
// the last, is global and does not rotate. A theta is 0 or that of all layers.
void ReadMuseLayers(ConfigFields& fields, ModelConfig* model);
void WriteMuseLayers(const ModelConfig& model, nlohmann::json* fields);

// The smallest vision tower that transformers builds: it always builds one, and one without weights
// should cost nothing.
nlohmann::json SmallestVisionTower(const char* model_type);

}  // namespace headwise

#endif  // HEADWISE_MODEL_HF_MUSE_FIELDS_H_
