// What a ModelConfig (core/proto/config.proto) means: its checks, its defaults, and which layer
// does what.
//
//   const ModelConfig config = ResolveModelConfig(run.model());
//   HW_RETURN_IF_ERROR(ValidateModelConfig(config));
//   for (std::int64_t l = 0; l < config.num_layers(); ++l) {
//     LayerUsesRope(config, l);   // e.g. n = 8, nope_every = 4: layers 3 and 7 do not
//     LayerWindow(config, l);     // keys a query sees; 0: all
//   }
#ifndef HEADWISE_MODEL_CONFIG_H_
#define HEADWISE_MODEL_CONFIG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/heads/packed_qkv.h"
#include "core/proto/config.pb.h"

namespace headwise {

// kInvalidArgument names the first wrong field (in the order of the proto), its value and what it
// must be:
//
//   model.attention.num_kv_heads: 3 does not divide num_query_heads 8
//
// Accepts a config with defaults left open or resolved.
absl::Status ValidateModelConfig(const ModelConfig& config);

// Fills in every field whose zero means a default: rotary_dim (head_dim), query_scale (1),
// logit_multiplier (1), head_std (dim^-1/2), window_pattern ([0]), alpha and limit of
// CLAMPED_SWIGLU, experts' scaling_factor (1), YaRN's betas and attention_factor. Leaves out an
// ffn.moe of zeros only, so that has_moe() says whether there are experts. Idempotent.
ModelConfig ResolveModelConfig(ModelConfig config);

// Layers counted from the last: every nope_every-th has no rotation, the last one among them.
// nope_every = 0: all rotate. 0 <= layer < num_layers (checked).
bool LayerUsesRope(const ModelConfig& config, std::int64_t layer);

// Keys a query of this layer sees, itself included; 0: all before it. The pattern is laid out so
// that with a pattern as long as nope_every its last entry falls on the NoPE layers.
std::int64_t LayerWindow(const ModelConfig& config, std::int64_t layer);

// Whether this layer's feed-forward layer is a mixture of experts.
bool LayerHasExperts(const ModelConfig& config, std::int64_t layer);

// How the heads lie in wqkv's rows. kInvalidArgument as PackedQkv::Create.
absl::StatusOr<PackedQkv> QkvLayout(const AttentionConfig& config);

}  // namespace headwise

#endif  // HEADWISE_MODEL_CONFIG_H_
