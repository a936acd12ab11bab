// Multi-head latent attention: queries and key/values go through a low rank, and the up-projections'
// rows are heads of nope + rope (queries) and nope + value (keys and values) rows.
#ifndef HEADWISE_OPTIM_ARCHITECTURES_LATENT_H_
#define HEADWISE_OPTIM_ARCHITECTURES_LATENT_H_

#include <cstdint>
#include <vector>

#include "optim/architectures/rule.h"

namespace headwise {

// The defaults of a configuration class; 0: none (q_lora_rank: null, that is a plain q_proj;
// v_head_dim: hidden_size / heads).
struct LatentDefaults {
  std::int64_t hidden_size;
  std::int64_t heads;
  std::int64_t qk_nope_head_dim;
  std::int64_t qk_rope_head_dim;
  std::int64_t v_head_dim;
  std::int64_t kv_lora_rank;
  std::int64_t q_lora_rank;
};

// q_proj or q_a_proj and q_b_proj, kv_a_proj_with_mqa, kv_b_proj, o_proj; reads hidden_size,
// num_attention_heads, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, kv_lora_rank, q_lora_rank.
AttentionModule LatentModule(const char* path, const LatentDefaults& defaults);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ARCHITECTURES_LATENT_H_
