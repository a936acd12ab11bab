// rope_fields: the rotary embedding of a config.json, in the form of transformers 5 and in the
// older one, as a RopeConfig, and back.
//
//   new   "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, ...}
//   old   "rope_theta": 500000.0, "rope_scaling": null or {"rope_type" (older: "type"): ...}
//
// Source: modeling_rope_utils.py of transformers. What it resolves silently (two forms or two
// thetas that differ) is an error here.
#ifndef HEADWISE_MODEL_HF_ROPE_FIELDS_H_
#define HEADWISE_MODEL_HF_ROPE_FIELDS_H_

#include <cstdint>
#include <optional>

#include "core/proto/config.pb.h"
#include "model/hf/config_fields.h"
#include "nlohmann/json_fwd.hpp"

namespace headwise {

struct RopeDefaults {
  double theta = 10000;
  // Of a config.json that names no scaling: GPT-OSS has one.
  std::optional<RopeScaling> scaling = std::nullopt;
};

// Fills theta, rotary_dim and scaling; max_position is max_position_embeddings.
void ReadRope(ConfigFields& fields, const RopeDefaults& defaults, std::int64_t max_position,
              RopeConfig* rope);

// The old form, which every version of transformers reads. With say_default, a model without
// scaling says so, for families whose default is another.
void WriteOldRope(const RopeConfig& rope, bool say_default, nlohmann::json* fields);
// The new form.
void WriteNewRope(const RopeConfig& rope, nlohmann::json* fields);

}  // namespace headwise

#endif  // HEADWISE_MODEL_HF_ROPE_FIELDS_H_
