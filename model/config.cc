#include "model/config.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "google/protobuf/util/message_differencer.h"
#include "model/field_checks.h"

namespace headwise {
namespace {

constexpr std::int64_t kMaxHeadDim = 512;  // of the canonical reduction over a head
constexpr std::int64_t kMaxLayersOrHeads = 65536;
constexpr std::int64_t kMaxExperts = 65536;

// Whether experts are asked for. A `moe` that says nothing, as it is printed of a model without
// them, is as good as none; one with a forgotten num_experts is a mistake.
bool AsksForExperts(const FfnConfig& ffn) {
  return ffn.has_moe() && !google::protobuf::util::MessageDifferencer::Equivalent(
                              ffn.moe(), MoeConfig::default_instance());
}

// Fills in YaRN's defaults.
RopeScaling WithDefaults(RopeScaling s) {
  if (s.kind() != ROPE_YARN) return s;
  if (s.beta_fast() == 0) s.set_beta_fast(32);
  if (s.beta_slow() == 0) s.set_beta_slow(1);
  if (s.attention_factor() == 0) s.set_attention_factor(0.1 * std::log(s.factor()) + 1);
  return s;
}

void CheckScaling(const RopeScaling& s, FieldChecks& checks) {
  const std::string path = "attention.rope.scaling.";
  if (!RopeScalingKind_IsValid(s.kind())) {
    checks.Fail(path + "kind", absl::StrCat(s.kind(), " is not a RopeScalingKind"));
  }
  if (s.kind() == ROPE_UNSCALED) return;
  if (!(s.factor() >= 1) || std::isinf(s.factor())) {
    checks.Fail(path + "factor", absl::StrCat(s.factor(), " must be a finite number >= 1"));
  }
  if (s.kind() == ROPE_LINEAR) return;
  checks.Dimension(path + "original_max_position", s.original_max_position());
  if (s.kind() == ROPE_LLAMA3) {
    checks.Positive(path + "low_freq_factor", s.low_freq_factor());
    if (!(s.high_freq_factor() > s.low_freq_factor()) || std::isinf(s.high_freq_factor())) {
      checks.Fail(
          path + "high_freq_factor",
          absl::StrCat(s.high_freq_factor(), " must be finite and greater than low_freq_factor ",
                       s.low_freq_factor()));
    }
    return;
  }
  checks.NotNegative(path + "beta_fast", s.beta_fast());
  checks.NotNegative(path + "beta_slow", s.beta_slow());
  const RopeScaling resolved = WithDefaults(s);
  if (!(resolved.beta_fast() > resolved.beta_slow())) {
    checks.Fail(path + "beta_fast",
                absl::StrCat(resolved.beta_fast(), " must be greater than beta_slow ",
                             resolved.beta_slow()));
  }
  checks.NotNegative(path + "attention_factor", s.attention_factor());
}

void CheckRope(const AttentionConfig& a, FieldChecks& checks) {
  const RopeConfig& rope = a.rope();
  checks.Positive("attention.rope.theta", rope.theta());
  if (rope.rotary_dim() < 0 || rope.rotary_dim() % 2 != 0 || rope.rotary_dim() > a.head_dim()) {
    checks.Fail("attention.rope.rotary_dim",
                absl::StrCat(rope.rotary_dim(), " must be even and from 0 (all) to head_dim ",
                             a.head_dim()));
  }
  if (!RopePairing_IsValid(rope.pairing())) {
    checks.Fail("attention.rope.pairing", absl::StrCat(rope.pairing(), " is not a RopePairing"));
  }
  if (rope.nope_every() < 0) {
    checks.Fail("attention.rope.nope_every",
                absl::StrCat(rope.nope_every(), " must be >= 0; 0: every layer rotates"));
  }
  CheckScaling(rope.scaling(), checks);
}

void CheckAttention(const AttentionConfig& a, FieldChecks& checks) {
  checks.Dimension("attention.num_query_heads", a.num_query_heads());
  if (a.num_query_heads() > kMaxLayersOrHeads) {
    checks.Fail("attention.num_query_heads",
                absl::StrCat(a.num_query_heads(), " must be at most ", kMaxLayersOrHeads));
  }
  checks.Dimension("attention.num_kv_heads", a.num_kv_heads());
  if (a.num_kv_heads() > 0 && a.num_query_heads() % a.num_kv_heads() != 0) {
    checks.Fail(
        "attention.num_kv_heads",
        absl::StrCat(a.num_kv_heads(), " does not divide num_query_heads ", a.num_query_heads()));
  }
  if (a.head_dim() < 2 || a.head_dim() % 2 != 0 || a.head_dim() > kMaxHeadDim) {
    checks.Fail("attention.head_dim",
                absl::StrCat(a.head_dim(), " must be even and from 2 to ", kMaxHeadDim));
  }
  if (!QkvPacking_IsValid(a.packing())) {
    checks.Fail("attention.packing", absl::StrCat(a.packing(), " is not a QkvPacking"));
  }
  if (!HeadNormStyle_IsValid(a.head_norm())) {
    checks.Fail("attention.head_norm", absl::StrCat(a.head_norm(), " is not a HeadNormStyle"));
  }
  if (a.head_norm() != HEAD_NORM_NONE &&
      (!(static_cast<float>(a.head_norm_epsilon()) > 0) || !(a.head_norm_epsilon() < 1))) {
    checks.Fail("attention.head_norm_epsilon",
                absl::StrCat(a.head_norm_epsilon(), " must be > 0 and < 1, e.g. 1e-6"));
  }
  checks.NotNegative("attention.query_scale", a.query_scale());
  if (a.head_norm() == HEAD_NORM_NONE && a.query_scale() != 0 && a.query_scale() != 1) {
    checks.Fail("attention.query_scale",
                absl::StrCat(a.query_scale(),
                             " needs a head norm: with head_norm HEAD_NORM_NONE it must be 1"));
  }
  if (!QkvRounding_IsValid(a.rounding())) {
    checks.Fail("attention.rounding", absl::StrCat(a.rounding(), " is not a QkvRounding"));
  }
  CheckRope(a, checks);
  if (!(a.output_norm_epsilon() >= 0) || !(a.output_norm_epsilon() < 1)) {
    checks.Fail("attention.output_norm_epsilon",
                absl::StrCat(a.output_norm_epsilon(), " must be >= 0 (0: no norm) and < 1"));
  }
  for (int i = 0; i < a.window_pattern_size(); ++i) {
    if (a.window_pattern(i) < 0) {
      checks.Fail(absl::StrCat("attention.window_pattern[", i, "]"),
                  absl::StrCat(a.window_pattern(i), " must be >= 0; 0: every key"));
    }
  }
}

void CheckExperts(const ModelConfig& config, FieldChecks& checks) {
  const MoeConfig& moe = config.ffn().moe();
  checks.Dimension("ffn.moe.num_experts", moe.num_experts());
  if (moe.num_experts() > kMaxExperts) {
    checks.Fail("ffn.moe.num_experts",
                absl::StrCat(moe.num_experts(), " must be at most ", kMaxExperts));
  }
  if (moe.experts_per_token() < 1 || moe.experts_per_token() > moe.num_experts()) {
    checks.Fail("ffn.moe.experts_per_token",
                absl::StrCat(moe.experts_per_token(), " must be from 1 to num_experts ",
                             moe.num_experts()));
  }
  checks.Dimension("ffn.moe.expert_dim", moe.expert_dim());
  if (moe.shared_dim() != 0) checks.Dimension("ffn.moe.shared_dim", moe.shared_dim());
  if (!RouterScoring_IsValid(moe.score())) {
    checks.Fail("ffn.moe.score", absl::StrCat(moe.score(), " is not a RouterScoring"));
  }
  checks.NotNegative("ffn.moe.scaling_factor", moe.scaling_factor());
  checks.NotNegative("ffn.moe.router_multiplier", moe.router_multiplier());
  if (moe.expert_width() != 0) checks.Dimension("ffn.moe.expert_width", moe.expert_width());
  checks.Norm("ffn.moe.pre_expert_norm", moe.pre_expert_norm());
  checks.Norm("ffn.moe.post_expert_norm", moe.post_expert_norm());
  if (!RouterBalancing_IsValid(moe.balancing())) {
    checks.Fail("ffn.moe.balancing", absl::StrCat(moe.balancing(), " is not a RouterBalancing"));
  }
  checks.NotNegative("ffn.moe.auxiliary_loss_weight", moe.auxiliary_loss_weight());
  if (moe.auxiliary_loss_weight() != 0 && moe.balancing() != BALANCING_AUXILIARY_LOSS) {
    checks.Fail("ffn.moe.auxiliary_loss_weight",
                absl::StrCat(moe.auxiliary_loss_weight(),
                             " has no use without balancing: BALANCING_AUXILIARY_LOSS"));
  }
  if (moe.dense_layers() < 0 || moe.dense_layers() >= config.num_layers()) {
    checks.Fail("ffn.moe.dense_layers",
                absl::StrCat(moe.dense_layers(),
                             " must be from 0 to num_layers - 1 = ", config.num_layers() - 1));
  }
}

void CheckFfn(const ModelConfig& config, FieldChecks& checks) {
  const FfnConfig& ffn = config.ffn();
  const bool experts = AsksForExperts(ffn);
  const bool only_experts = experts && ffn.moe().dense_layers() == 0;
  if (only_experts && ffn.hidden_dim() != 0) {
    checks.Fail("ffn.hidden_dim", absl::StrCat(ffn.hidden_dim(),
                                               " has no use where every layer has experts: their "
                                               "width is ffn.moe.expert_dim; it must be 0"));
  }
  if (!only_experts) checks.Dimension("ffn.hidden_dim", ffn.hidden_dim());
  if (!FfnActivation_IsValid(ffn.activation())) {
    checks.Fail("ffn.activation", absl::StrCat(ffn.activation(), " is not a FfnActivation"));
  }
  checks.NotNegative("ffn.activation_alpha", ffn.activation_alpha());
  checks.NotNegative("ffn.activation_limit", ffn.activation_limit());
  if (ffn.activation() == SWIGLU && (ffn.activation_alpha() != 0 || ffn.activation_limit() != 0)) {
    checks.Fail(ffn.activation_alpha() != 0 ? "ffn.activation_alpha" : "ffn.activation_limit",
                "has no use without activation: CLAMPED_SWIGLU");
  }
  if (experts) CheckExperts(config, checks);
}

}  // namespace

absl::Status ValidateModelConfig(const ModelConfig& config) {
  FieldChecks checks;
  checks.Dimension("vocab_size", config.vocab_size());
  checks.Dimension("dim", config.dim());
  checks.Dimension("num_layers", config.num_layers());
  if (config.num_layers() > kMaxLayersOrHeads) {
    checks.Fail("num_layers",
                absl::StrCat(config.num_layers(), " must be at most ", kMaxLayersOrHeads));
  }
  CheckAttention(config.attention(), checks);
  CheckFfn(config, checks);
  checks.Norm("embedding_norm", config.embedding_norm());
  checks.Norm("attention_norm", config.attention_norm());
  checks.Norm("post_attention_norm", config.post_attention_norm());
  checks.Norm("ffn_norm", config.ffn_norm());
  checks.Norm("post_ffn_norm", config.post_ffn_norm());
  checks.Norm("final_norm", config.final_norm());
  checks.NotNegative("logit_multiplier", config.logit_multiplier());
  checks.NotNegative("logit_cap", config.logit_cap());
  checks.NotNegative("init.embedding_std", config.init().embedding_std());
  checks.NotNegative("init.linear_std", config.init().linear_std());
  checks.NotNegative("init.head_std", config.init().head_std());
  checks.Dimension("max_sequence_length", config.max_sequence_length());
  checks.NotNegative("residual_gate_temperature", config.residual_gate_temperature());
  return checks.status();
}

ModelConfig ResolveModelConfig(ModelConfig config) {
  AttentionConfig& a = *config.mutable_attention();
  if (a.rope().has_scaling()) {
    *a.mutable_rope()->mutable_scaling() = WithDefaults(a.rope().scaling());
  }
  FfnConfig& ffn = *config.mutable_ffn();
  if (ffn.activation() == CLAMPED_SWIGLU) {
    if (ffn.activation_alpha() == 0) ffn.set_activation_alpha(1.702);
    if (ffn.activation_limit() == 0) ffn.set_activation_limit(7);
  }
  if (!AsksForExperts(ffn)) {
    ffn.clear_moe();
  } else {
    MoeConfig& moe = *ffn.mutable_moe();
    if (moe.scaling_factor() == 0) moe.set_scaling_factor(1);
    if (moe.router_multiplier() == 0) moe.set_router_multiplier(1);
  }
  if (a.rope().rotary_dim() == 0) a.mutable_rope()->set_rotary_dim(a.head_dim());
  if (a.query_scale() == 0) a.set_query_scale(1);
  if (a.window_pattern_size() == 0) a.add_window_pattern(0);
  if (config.logit_multiplier() == 0) config.set_logit_multiplier(1);
  if (config.init().head_std() == 0 && config.dim() > 0) {
    config.mutable_init()->set_head_std(1.0 / std::sqrt(static_cast<double>(config.dim())));
  }
  return config;
}

bool LayerUsesRope(const ModelConfig& config, std::int64_t layer) {
  HW_CHECK(layer >= 0 && layer < config.num_layers()) << "layer " << layer;
  const std::int64_t every = config.attention().rope().nope_every();
  return every == 0 || (config.num_layers() - layer - 1) % every != 0;
}

std::int64_t LayerWindow(const ModelConfig& config, std::int64_t layer) {
  HW_CHECK(layer >= 0 && layer < config.num_layers()) << "layer " << layer;
  const auto& pattern = config.attention().window_pattern();
  if (pattern.empty()) return 0;
  const std::int64_t every = config.attention().rope().nope_every();
  const std::int64_t phase = every == 0 ? 0 : every - config.num_layers() % every;
  return pattern[static_cast<int>((layer + phase) % pattern.size())];
}

bool LayerHasExperts(const ModelConfig& config, std::int64_t layer) {
  HW_CHECK(layer >= 0 && layer < config.num_layers()) << "layer " << layer;
  return config.ffn().moe().num_experts() > 0 && layer >= config.ffn().moe().dense_layers();
}

absl::StatusOr<PackedQkv> QkvLayout(const AttentionConfig& config) {
  return PackedQkv::Create(
      config.packing() == SECTIONED ? Packing::kSectioned : Packing::kInterleavedPerKvGroup,
      {.query_heads = config.num_query_heads(),
       .kv_heads = config.num_kv_heads(),
       .head_dim = config.head_dim()});
}

}  // namespace headwise
