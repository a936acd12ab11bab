#include "model/config.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace headwise {
namespace {

// Beyond these a product of dimensions could leave 64 bits.
constexpr std::int64_t kMaxDimension = std::int64_t{1} << 31;
constexpr std::int64_t kMaxHeadDim = 512;  // of the canonical reduction over a head

absl::Status Invalid(const std::string& field, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat("model.", field, ": ", problem));
}

constexpr std::int64_t kMaxLayersOrHeads = 65536;

// Keeps the first problem found.
class FieldChecks {
 public:
  void Fail(const std::string& field, const std::string& problem) {
    if (status_.ok()) status_ = Invalid(field, problem);
  }
  void Dimension(const std::string& field, std::int64_t value) {
    if (value < 1 || value > kMaxDimension) {
      Fail(field, absl::StrCat(value, " is out of range; it must be from 1 to ", kMaxDimension));
    }
  }
  void NotNegative(const std::string& field, double value) {
    if (!(value >= 0) || !std::isfinite(static_cast<float>(value))) {
      Fail(field, absl::StrCat(value, " must be a finite number >= 0"));
    }
  }
  void Positive(const std::string& field, double value) {
    if (!(value > 0) || std::isinf(value)) {
      Fail(field, absl::StrCat(value, " must be a finite number > 0"));
    }
  }
  void Finite(const std::string& field, double value) {
    if (!std::isfinite(value)) Fail(field, absl::StrCat(value, " must be finite"));
  }
  void Norm(const std::string& field, const NormConfig& norm) {
    if (!NormStyle_IsValid(norm.style())) {
      Fail(absl::StrCat(field, ".style"), absl::StrCat(norm.style(), " is not a NormStyle"));
    }
    if (norm.style() == NORM_ABSENT) return;
    // The kernels take it in single precision, where a smaller one would be nothing.
    if (!(static_cast<float>(norm.epsilon()) > 0) || !(norm.epsilon() < 1)) {
      Fail(absl::StrCat(field, ".epsilon"),
           absl::StrCat(norm.epsilon(), " must be > 0 and < 1, e.g. 1e-5"));
    }
    Finite(absl::StrCat(field, ".centre"), norm.centre());
    Finite(absl::StrCat(field, ".initial_weight"), norm.initial_weight());
  }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

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
  for (int i = 0; i < a.window_pattern_size(); ++i) {
    if (a.window_pattern(i) < 0) {
      checks.Fail(absl::StrCat("attention.window_pattern[", i, "]"),
                  absl::StrCat(a.window_pattern(i), " must be >= 0; 0: every key"));
    }
  }
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
  checks.Dimension("ffn.hidden_dim", config.ffn().hidden_dim());
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
  return checks.status();
}

ModelConfig ResolveModelConfig(ModelConfig config) {
  AttentionConfig& a = *config.mutable_attention();
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

absl::StatusOr<PackedQkv> QkvLayout(const AttentionConfig& config) {
  return PackedQkv::Create(
      config.packing() == SECTIONED ? Packing::kSectioned : Packing::kInterleavedPerKvGroup,
      {.query_heads = config.num_query_heads(),
       .kv_heads = config.num_kv_heads(),
       .head_dim = config.head_dim()});
}

}  // namespace headwise
