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

constexpr char kExperts[] = R"pb(
  name: "experts"
  vocab_size: 19
  dim: 24
  num_layers: 3
  attention {
    num_query_heads: 6
    num_kv_heads: 2
    head_dim: 4
    packing: INTERLEAVED_PER_KV_GROUP
    qkv_bias: true
    output_bias: true
    sinks: true
    rope {
      theta: 100
      scaling { kind: ROPE_YARN factor: 4 original_max_position: 8 beta_fast: 4 exact_ramp: true }
    }
    window_pattern: [ 3, 0 ]
  }
  ffn {
    hidden_dim: 20
    activation: CLAMPED_SWIGLU
    activation_limit: 0.75
    bias: true
    moe {
      num_experts: 5
      experts_per_token: 2
      expert_dim: 12
      shared_dim: 10
      score: ROUTER_SOFTMAX
      normalize: true
      scaling_factor: 1.25
      router_bias: true
      balancing: BALANCING_AUXILIARY_LOSS
      auxiliary_loss_weight: 0.5
      dense_layers: 1
    }
  }
  attention_norm { style: RMS epsilon: 1e-5 initial_weight: 1 }
  ffn_norm { style: RMS epsilon: 1e-5 initial_weight: 1 }
  final_norm { style: RMS epsilon: 1e-5 initial_weight: 1 }
  init { embedding_std: 1 linear_std: 0.2 }
  max_sequence_length: 64
  tied_head: true
)pb";

constexpr char kSpark[] = R"pb(
  name: "spark"
  vocab_size: 19
  dim: 24
  num_layers: 4
  attention {
    num_query_heads: 4
    num_kv_heads: 2
    head_dim: 8
    packing: INTERLEAVED_PER_KV_GROUP
    head_norm: HEAD_NORM_SCALELESS
    head_norm_epsilon: 1e-5
    query_scale: 1.5
    rope { theta: 100 nope_every: 4 }
    window_pattern: [ 3, 3, 3, 0 ]
    output_gate: true
    output_norm_epsilon: 1e-5
  }
  ffn {
    moe {
      num_experts: 6
      experts_per_token: 3
      expert_dim: 12
      score: ROUTER_SIGMOID
      normalize: true
      router_multiplier: 0.5
      balancing: BALANCING_BIAS
      expert_width: 16
      pre_expert_norm { style: RMS_GAIN_CENTERED epsilon: 1e-5 centre: 1 }
      post_expert_norm { style: RMS_INPUT_SCALED epsilon: 1e-5 centre: 1 }
    }
  }
  embedding_norm { style: RMS_SCALELESS epsilon: 1e-5 }
  attention_norm { style: RMS_GAIN_CENTERED epsilon: 1e-5 centre: 1 }
  post_attention_norm { style: RMS_SCALELESS epsilon: 1e-5 }
  ffn_norm { style: RMS_GAIN_CENTERED epsilon: 1e-5 centre: 1 }
  post_ffn_norm { style: RMS_INPUT_SCALED epsilon: 1e-5 centre: 1 }
  final_norm { style: RMS epsilon: 1e-5 initial_weight: 1 }
  logit_multiplier: 0.75
  logit_cap: 4
  init { embedding_std: 1 linear_std: 0.2 scale_residual_by_depth: true }
  max_sequence_length: 64
  residual_gate_temperature: 0.3
)pb";

ModelConfig Parse(const char* text) {
  ModelConfig config;
  HW_CHECK(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

}  // namespace

ModelConfig ExpertsConfig() { return Parse(kExperts); }

ModelConfig SparkConfig() { return Parse(kSpark); }

ModelConfig UnfusedSparkConfig() {
  ModelConfig config = SparkConfig();
  config.set_name("unfused_spark");
  config.mutable_attention()->set_head_dim(64);
  config.mutable_attention()->set_unfused_qkv(true);
  return config;
}

std::vector<ModelConfig> AllTestConfigs() {
  return {EverythingConfig(), OtherwiseConfig(), PlainConfig(), ExpertsConfig(), SparkConfig()};
}

ModelConfig EverythingConfig() { return Parse(kEverything); }

ModelConfig OtherwiseConfig() {
  ModelConfig config = EverythingConfig();
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
