#include "model/attention_block.h"

#include <cmath>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "model/config.h"
#include "model/initial_std.h"

namespace headwise {
namespace {

HeadNorm Norm(HeadNormStyle style) {
  switch (style) {
    case HEAD_NORM_SCALELESS:
      return HeadNorm::kScaleless;
    case HEAD_NORM_WEIGHTED:
      return HeadNorm::kWeighted;
    case HEAD_NORM_GAIN_CENTERED:
      return HeadNorm::kGainCentered;
    default:
      return HeadNorm::kNone;
  }
}

Rounding RoundingOf(QkvRounding rounding) {
  switch (rounding) {
    case BEFORE_WEIGHT:
      return Rounding::kBeforeWeight;
    case ONLY_AT_END:
      return Rounding::kOnlyAtEnd;
    default:
      return Rounding::kAfterWeight;
  }
}

Tensor ValueOf(const Parameter* parameter) {
  return parameter == nullptr ? Tensor() : parameter->value;
}

Tensor GradientOf(const Parameter* parameter) {
  return parameter == nullptr ? Tensor() : parameter->gradient;
}

Tensor PerGroupGradientOf(const Parameter* parameter) {
  return parameter == nullptr ? Tensor() : parameter->per_group_gradient;
}

}  // namespace

AttentionBlock::AttentionBlock(const ModelConfig& config, std::int64_t layer,
                               const std::string& name, const RotaryTable* rotary,
                               ParameterStore& store)
    : layer_(layer),
      prepare_{.layout = *QkvLayout(config.attention()),
               .norm = Norm(config.attention().head_norm()),
               .epsilon = static_cast<float>(config.attention().head_norm_epsilon()),
               .query_scale = static_cast<float>(config.attention().query_scale()),
               .rotary = LayerUsesRope(config, layer) ? rotary : nullptr,
               .rounding = RoundingOf(config.attention().rounding())},
      attention_{.query_heads = config.attention().num_query_heads(),
                 .kv_heads = config.attention().num_kv_heads(),
                 .head_dim = config.attention().head_dim(),
                 .scale = 1.0 / std::sqrt(static_cast<double>(config.attention().head_dim())),
                 .window = LayerWindow(config, layer)},
      output_norm_{.style = RmsNormStyle::kScaleless,
                   .epsilon = static_cast<float>(config.attention().output_norm_epsilon())},
      unfused_(config.attention().unfused_qkv()) {
  const PackedQkv& layout = prepare_.layout;
  const std::int64_t dim = config.dim();
  const std::int64_t query_width = layout.query_heads() * layout.head_dim();
  const Init linear = Init::Truncated(config.init().linear_std());
  wqkv_ = store.AddLinear(name + ".wqkv", ParameterRole::kPackedQkv, layout.row_width(), dim,
                          linear, HeadBlocks::FromPacked(layout));
  if (config.attention().qkv_bias()) {
    bias_ = store.Add(name + ".wqkv_bias", ParameterRole::kBias, {layout.row_width()},
                      Init::Constant(0));
  }
  if (prepare_.norm == HeadNorm::kWeighted || prepare_.norm == HeadNorm::kGainCentered) {
    const Init one = Init::Constant(prepare_.norm == HeadNorm::kWeighted ? 1 : 0);
    q_norm_ = store.AddHeadNorm(name + ".q_norm", layout.kv_heads(), layout.head_dim(), one);
    k_norm_ = store.AddHeadNorm(name + ".k_norm", layout.kv_heads(), layout.head_dim(), one);
  }
  if (config.attention().sinks()) {
    sinks_ =
        store.Add(name + ".sinks", ParameterRole::kBias, {layout.query_heads()}, Init::Constant(0));
  }
  if (config.attention().output_gate()) {
    gate_ = store.AddLinear(name + ".gate", ParameterRole::kAttentionGate, query_width, dim, linear,
                            *HeadBlocks::Separate(HeadRole::kGate, layout.query_heads(),
                                                  layout.head_dim(), layout.group_size()));
  }
  wo_ = store.AddLinear(name + ".wo", ParameterRole::kAttentionOutput, dim, query_width,
                        Init::Truncated(ResidualStd(config.init(), layer)));
  if (config.attention().output_bias()) {
    wo_bias_ = store.Add(name + ".wo_bias", ParameterRole::kBias, {dim}, Init::Constant(0));
  }
}

ops::QkvArguments AttentionBlock::Arguments(absl::Span<const std::int64_t> positions) const {
  return {.op = prepare_,
          .q_weight = ValueOf(q_norm_),
          .k_weight = ValueOf(k_norm_),
          .positions = prepare_.rotary == nullptr ? absl::Span<const std::int64_t>() : positions,
          .unfused = unfused_};
}

Tensor AttentionBlock::Project(const OpContext& ctx, const Tensor& x) const {
  return ops::Linear(ctx, x, wqkv_.compute, ValueOf(bias_));
}

Tensor AttentionBlock::NormOutput(const OpContext& ctx, const Tensor& o) const {
  if (output_norm_.epsilon == 0) return o;
  const Shape heads = {o.dim(0) * attention_.query_heads, attention_.head_dim};
  return ops::RmsNorm(ctx, output_norm_, o.View(heads), {}).View(o.shape());
}

Tensor AttentionBlock::Output(const OpContext& ctx, const Tensor& x, const Tensor& o,
                              Saved* saved) const {
  const Tensor normed = NormOutput(ctx, o);
  if (gate_.parameter == nullptr) return ops::Linear(ctx, normed, wo_.compute, ValueOf(wo_bias_));
  Tensor gate = ops::Linear(ctx, x, gate_.compute, {});
  const Tensor gated = ops::SigmoidGate(ctx, normed, gate);
  if (saved != nullptr) saved->gate = std::move(gate);
  return ops::Linear(ctx, gated, wo_.compute, ValueOf(wo_bias_));
}

Tensor AttentionBlock::Forward(const OpContext& ctx, const Tensor& x, const SequenceInfo& sequence,
                               Saved* saved) const {
  Tensor packed = Project(ctx, x);
  Tensor o;
  {
    const ops::Qkv qkv = ops::PrepareQkv(ctx, Arguments(sequence.positions), packed);
    Tensor log_sum_exp;
    if (saved != nullptr) {
      log_sum_exp = ctx.Empty({x.dim(0), attention_.query_heads}, ctx.master());
    } else {
      packed = Tensor();
    }
    o = ops::Attention(ctx, attention_, sequence.segments, qkv, ValueOf(sinks_), log_sum_exp);
    if (saved != nullptr) *saved = {std::move(packed), o, std::move(log_sum_exp), Tensor()};
  }
  return Output(ctx, x, o, saved);
}

Tensor AttentionBlock::Backward(const OpContext& ctx, const Tensor& x, const Tensor& dy,
                                const SequenceInfo& sequence, Saved saved) const {
  if (wo_bias_ != nullptr) ops::LinearBackwardBias(ctx, dy, wo_bias_->gradient);
  Tensor d_o = ops::LinearBackwardInput(ctx, dy, wo_.compute);
  Tensor dx_gate;
  Tensor normed = NormOutput(ctx, saved.o);
  if (gate_.parameter == nullptr) {
    ops::LinearBackwardWeight(ctx, dy, normed, wo_.parameter->gradient);
  } else {
    ops::LinearBackwardWeight(ctx, dy, ops::SigmoidGate(ctx, normed, saved.gate),
                              wo_.parameter->gradient);
    ops::SigmoidGateBackwardInPlace(ctx, normed, saved.gate, d_o);
    const Tensor dgate = std::exchange(saved.gate, Tensor());
    ops::LinearBackwardWeight(ctx, dgate, x, gate_.parameter->gradient);
    dx_gate = ops::LinearBackwardInput(ctx, dgate, gate_.compute);
  }
  normed = Tensor();
  if (output_norm_.epsilon != 0) {
    const Shape heads = {d_o.dim(0) * attention_.query_heads, attention_.head_dim};
    d_o = ops::RmsNormBackward(ctx, output_norm_, saved.o.View(heads), {}, d_o.View(heads), {})
              .View(saved.o.shape());
  }

  const ops::QkvArguments arguments = Arguments(sequence.positions);
  ops::Qkv dqkv;
  {
    const ops::Qkv qkv = ops::PrepareQkv(ctx, arguments, saved.packed);
    dqkv = ops::AttentionBackward(ctx, attention_, sequence.segments, qkv, ValueOf(sinks_), saved.o,
                                  saved.log_sum_exp, d_o, GradientOf(sinks_));
  }
  d_o = Tensor();
  saved.o = Tensor();
  const Tensor dpacked = ops::PrepareQkvBackward(
      ctx, arguments, saved.packed, dqkv, PerGroupGradientOf(q_norm_), PerGroupGradientOf(k_norm_));
  for (const Parameter* norm : {q_norm_, k_norm_}) {
    if (norm != nullptr) ops::ReduceHeadNormGradient(ctx, norm->per_group_gradient, norm->gradient);
  }
  dqkv = ops::Qkv();
  saved.packed = Tensor();

  ops::LinearBackwardWeight(ctx, dpacked, x, wqkv_.parameter->gradient);
  if (bias_ != nullptr) ops::LinearBackwardBias(ctx, dpacked, bias_->gradient);
  const Tensor dx = ops::LinearBackwardInput(ctx, dpacked, wqkv_.compute);
  if (dx_gate.defined()) ops::AddInPlace(ctx, dx, dx_gate);
  return dx;
}

Tensor AttentionBlock::Extend(const OpContext& ctx, const Tensor& x,
                              absl::Span<const std::int64_t> positions, const KvCache::Pass& pass,
                              KvCache& cache) const {
  const ops::Qkv qkv = ops::PrepareQkv(ctx, Arguments(positions), Project(ctx, x));
  const std::vector<AttentionSegment> segments = cache.Append(ctx, layer_, pass, qkv.k, qkv.v);
  const Tensor o = ops::Attention(ctx, attention_, segments,
                                  {.q = qkv.q, .k = cache.keys(layer_), .v = cache.values(layer_)},
                                  ValueOf(sinks_), Tensor());
  return Output(ctx, x, o, nullptr);
}

}  // namespace headwise
