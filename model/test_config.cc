#include "model/test_config.h"

#include "core/base/check.h"
#include "google/protobuf/text_format.h"

namespace headwise {
namespace {

constexpr char kEverything[] = R"pb(
  name: "everything"
  vocab_size: 19
  dim: 24
  num_layers: 4
  attention {
    num_query_heads: 4
    num_kv_heads: 2
    head_dim: 8
    packing: INTERLEAVED_PER_KV_GROUP
    qkv_bias: true
    head_norm: HEAD_NORM_WEIGHTED
    head_norm_epsilon: 1e-5
    query_scale: 1.5
    rope { theta: 100 rotary_dim: 6 pairing: HALF nope_every: 3 }
    window_pattern: [ 3, 5, 0 ]
    output_gate: true
  }
  ffn { hidden_dim: 40 }
  embedding_norm { style: RMS_SCALELESS epsilon: 1e-5 }
  attention_norm { style: RMS_GAIN_CENTERED epsilon: 1e-5 centre: 1 }
  post_attention_norm { style: RMS_GAIN_CENTERED epsilon: 1e-4 centre: 0.5 }
  ffn_norm { style: RMS epsilon: 1e-5 initial_weight: 1 }
  post_ffn_norm { style: RMS epsilon: 1e-5 initial_weight: 1 }
  final_norm { style: RMS epsilon: 1e-6 initial_weight: 1 }
  logit_multiplier: 0.75
  logit_cap: 4
  init { embedding_std: 1 linear_std: 0.2 scale_residual_by_depth: true }
  max_sequence_length: 64
)pb";

ModelConfig Everything() {
  ModelConfig config;
  HW_CHECK(google::protobuf::TextFormat::ParseFromString(kEverything, &config));
  return config;
}

}  // namespace

ModelConfig EverythingConfig() { return Everything(); }

ModelConfig OtherwiseConfig() {
  ModelConfig config = Everything();
  config.set_name("otherwise");
  AttentionConfig& a = *config.mutable_attention();
  a.set_packing(SECTIONED);
  a.set_head_norm(HEAD_NORM_GAIN_CENTERED);
  a.set_qkv_bias(false);
  a.mutable_rope()->set_pairing(INTERLEAVED);
  config.clear_embedding_norm();
  config.clear_post_attention_norm();
  config.clear_post_ffn_norm();
  return config;
}

ModelConfig PlainConfig() {
  ModelConfig config = OtherwiseConfig();
  config.set_name("plain");
  AttentionConfig& a = *config.mutable_attention();
  a.set_head_norm(HEAD_NORM_NONE);
  a.set_query_scale(1);
  a.set_output_gate(false);
  a.clear_window_pattern();
  a.mutable_rope()->set_nope_every(0);
  *config.mutable_attention_norm() = config.ffn_norm();
  config.set_logit_multiplier(1);
  config.set_logit_cap(0);
  return config;
}

}  // namespace headwise
