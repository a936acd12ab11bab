#include "model/attention_block.h"

#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/parallel/rules/attention_rules.h"
#include "model/config.h"
#include "model/initial_std.h"
#include "model/qkv_preparation.h"

namespace headwise {
namespace {

Tensor ValueOf(const Parameter* parameter) {
  return parameter == nullptr ? Tensor() : parameter->value;
}

Tensor* GradientOf(Parameter* parameter) {
  return parameter == nullptr ? nullptr : &parameter->gradient;
}

Tensor* PerGroupGradientOf(Parameter* parameter) {
  return parameter == nullptr ? nullptr : &parameter->per_group_gradient;
}

// Heads [groups x queries of each] in the rows or columns of a weight.
Dim QueryDim(const PackedQkv& layout) {
  return rules::QueryHeads(layout.kv_heads(), layout.group_size(), layout.head_dim());
}

Dim PackedDim(const PackedQkv& layout) {
  const auto make = layout.packing() == Packing::kInterleavedPerKvGroup ? rules::InterleavedQkv
                                                                        : rules::SectionedQkv;
  return make(layout.kv_heads(), layout.group_size(), layout.head_dim());
}

// The layout of a rank that has `rows` of the packed rows: whole kv groups.
PackedQkv LocalLayout(AttentionConfig config, std::int64_t rows) {
  const std::int64_t queries = config.num_query_heads() / config.num_kv_heads();
  const std::int64_t groups = rows / ((queries + 2) * config.head_dim());
  config.set_num_kv_heads(groups);
  config.set_num_query_heads(groups * queries);
  return *QkvLayout(config);
}

}  // namespace

AttentionBlock::AttentionBlock(const ModelConfig& config, std::int64_t layer,
                               const std::string& name, const RotaryTable* rotary,
                               ParameterStore& store)
    : layer_(layer),
      prepare_(QkvPreparationOf(config, layer, rotary)),
      attention_{.query_heads = config.attention().num_query_heads(),
                 .kv_heads = config.attention().num_kv_heads(),
                 .head_dim = config.attention().head_dim(),
                 .scale = 1.0 / std::sqrt(static_cast<double>(config.attention().head_dim())),
                 .window = LayerWindow(config, layer)},
      output_norm_{.style = RmsNormStyle::kScaleless,
                   .epsilon = static_cast<float>(config.attention().output_norm_epsilon())},
      unfused_(config.attention().unfused_qkv()) {
  const PackedQkv layout = prepare_.layout;
  const Dim width = {{"N", config.dim()}};
  const Init linear = Init::Truncated(config.init().linear_std());
  wqkv_ = store.AddLinear(name + ".wqkv", ParameterRole::kPackedQkv, {PackedDim(layout), width},
                          linear, [&](std::int64_t rows) {
                            return HeadBlocks::FromPacked(LocalLayout(config.attention(), rows));
                          });
  prepare_.layout = LocalLayout(config.attention(), wqkv_.parameter->value.dim(0));
  if (config.attention().qkv_bias()) {
    bias_ = store.Add(name + ".wqkv_bias", ParameterRole::kBias, {PackedDim(layout)},
                      Init::Constant(0));
  }
  if (prepare_.norm == HeadNorm::kWeighted || prepare_.norm == HeadNorm::kGainCentered) {
    const Init one = Init::Constant(prepare_.norm == HeadNorm::kWeighted ? 1 : 0);
    const std::int64_t groups = prepare_.layout.kv_heads();
    q_norm_ = store.AddHeadNorm(name + ".q_norm", groups, layout.head_dim(), one);
    k_norm_ = store.AddHeadNorm(name + ".k_norm", groups, layout.head_dim(), one);
  }
  const Dim queries = QueryDim(layout);
  if (config.attention().sinks()) {
    sinks_ = store.Add(name + ".sinks", ParameterRole::kBias, {{queries[0], queries[1]}},
                       Init::Constant(0));
  }
  if (config.attention().output_gate()) {
    gate_ =
        store.AddLinear(name + ".gate", ParameterRole::kAttentionGate, {queries, width}, linear,
                        [&](std::int64_t rows) {
                          const std::int64_t heads = rows / layout.head_dim();
                          return *HeadBlocks::Separate(HeadRole::kGate, heads, layout.head_dim(),
                                                       std::gcd(heads, layout.group_size()));
                        });
  }
  wo_ = store.AddLinear(name + ".wo", ParameterRole::kAttentionOutput, {width, queries},
                        Init::Truncated(ResidualStd(config.init(), layer)));
  if (config.attention().output_bias()) {
    wo_bias_ = store.Add(name + ".wo_bias", ParameterRole::kBias, {width}, Init::Constant(0));
  }
}

ops::QkvArguments AttentionBlock::Arguments(const ops::TokenPositions& positions) const {
  return {.op = prepare_,
          .q_weight = ValueOf(q_norm_),
          .k_weight = ValueOf(k_norm_),
          .positions = prepare_.rotary == nullptr ? ops::TokenPositions() : positions,
          .unfused = unfused_};
}

Attention AttentionBlock::AttentionOf(const ops::Qkv& qkv) const {
  Attention op = attention_;
  op.query_heads = qkv.q.dim(1) / op.head_dim;
  op.kv_heads = qkv.k.dim(1) / op.head_dim;
  return op;
}

Tensor AttentionBlock::Project(const OpContext& ctx, const Tensor& in) const {
  return ops::Linear(ctx, in, wqkv_.compute, ValueOf(bias_));
}

ops::Qkv AttentionBlock::Prepare(const OpContext& ctx, const Tensor& packed,
                                 const ops::TokenPositions& positions) const {
  const ops::Qkv local = ops::PrepareQkv(ctx, Arguments(positions), packed);
  return {.q = ops::Cross(ctx, "q", local.q),
          .k = ops::Cross(ctx, "k", local.k),
          .v = ops::Cross(ctx, "v", local.v)};
}

Tensor AttentionBlock::NormOutput(const OpContext& ctx, const Tensor& o) const {
  if (output_norm_.epsilon == 0) return o;
  return ops::HeadRmsNorm(ctx, output_norm_, attention_.head_dim, o);
}

Tensor AttentionBlock::Output(const OpContext& ctx, const Tensor& in, const Tensor& o,
                              Saved* saved) const {
  Tensor heads = NormOutput(ctx, o);
  if (gate_.parameter != nullptr) {
    Tensor gate = ops::Linear(ctx, in, gate_.compute, {});
    heads = ops::SigmoidGate(ctx, heads, gate);
    if (saved != nullptr) saved->gate = std::move(gate);
  }
  // A bias counts once: after a sum over ranks.
  const bool bias_after = wo_bias_ != nullptr && ops::Communicates(ctx, "out");
  const Tensor out = ops::Cross(
      ctx, "out", ops::Linear(ctx, heads, wo_.compute, bias_after ? Tensor() : ValueOf(wo_bias_)));
  return bias_after ? ops::AddBias(ctx, out, wo_bias_->value) : out;
}

Tensor AttentionBlock::Forward(const OpContext& ctx, const Tensor& x, const SequenceInfo& sequence,
                               Saved* saved) const {
  const Tensor in = ops::Cross(ctx, "in", x);
  Tensor packed = Project(ctx, in);
  Tensor o;
  {
    const ops::Qkv qkv = Prepare(ctx, packed, sequence.positions);
    if (saved == nullptr) packed = Tensor();
    ops::AttentionOutput attention = ops::Attention(ctx, AttentionOf(qkv), sequence.segments, qkv,
                                                    ValueOf(sinks_), saved != nullptr);
    o = attention.o;
    if (saved != nullptr) {
      *saved = {.packed = std::move(packed), .attention = std::move(attention), .gate = {}};
    }
  }
  return Output(ctx, in, o, saved);
}

Tensor AttentionBlock::Backward(const OpContext& ctx, const Tensor& x, const Tensor& dy,
                                const SequenceInfo& sequence, Saved saved) const {
  if (wo_bias_ != nullptr) ops::LinearBackwardBias(ctx, dy, wo_bias_->gradient);
  const Tensor in = ops::Cross(ctx, "in", x);
  const Tensor dout = ops::CrossBackward(ctx, "out", dy);
  Tensor d_o = ops::LinearBackwardInput(ctx, dout, wo_.compute);
  Tensor dx_gate;
  Tensor normed = NormOutput(ctx, saved.attention.o);
  if (gate_.parameter == nullptr) {
    ops::LinearBackwardWeight(ctx, dout, normed, wo_.parameter->gradient);
  } else {
    ops::LinearBackwardWeight(ctx, dout, ops::SigmoidGate(ctx, normed, saved.gate),
                              wo_.parameter->gradient);
    const ops::GateGradients d = ops::SigmoidGateBackwardInPlace(ctx, normed, saved.gate, d_o);
    saved.gate = Tensor();
    d_o = d.x;
    ops::LinearBackwardWeight(ctx, d.gate, in, gate_.parameter->gradient);
    dx_gate = ops::LinearBackwardInput(ctx, d.gate, gate_.compute);
  }
  normed = Tensor();
  if (output_norm_.epsilon != 0) {
    d_o = ops::HeadRmsNormBackward(ctx, output_norm_, attention_.head_dim, saved.attention.o, d_o);
  }

  ops::Qkv dqkv;
  {
    const ops::Qkv qkv = Prepare(ctx, saved.packed, sequence.positions);
    dqkv = ops::AttentionBackward(ctx, AttentionOf(qkv), sequence.segments, qkv, ValueOf(sinks_),
                                  saved.attention, d_o, GradientOf(sinks_));
  }
  d_o = Tensor();
  saved.attention = {};
  dqkv = {.q = ops::CrossBackward(ctx, "q", dqkv.q),
          .k = ops::CrossBackward(ctx, "k", dqkv.k),
          .v = ops::CrossBackward(ctx, "v", dqkv.v)};
  const Tensor dpacked =
      ops::PrepareQkvBackward(ctx, Arguments(sequence.positions), saved.packed, dqkv,
                              PerGroupGradientOf(q_norm_), PerGroupGradientOf(k_norm_));
  for (Parameter* norm : {q_norm_, k_norm_}) {
    if (norm != nullptr) ops::ReduceHeadNormGradient(ctx, norm->per_group_gradient, norm->gradient);
  }
  dqkv = ops::Qkv();
  saved.packed = Tensor();

  ops::LinearBackwardWeight(ctx, dpacked, in, wqkv_.parameter->gradient);
  if (bias_ != nullptr) ops::LinearBackwardBias(ctx, dpacked, bias_->gradient);
  Tensor dx = ops::LinearBackwardInput(ctx, dpacked, wqkv_.compute);
  if (dx_gate.defined()) dx = ops::AddInPlace(ctx, dx, dx_gate);
  return ops::CrossBackward(ctx, "in", dx);
}

Tensor AttentionBlock::Extend(const OpContext& ctx, const Tensor& x, KvCache& cache) const {
  const ops::Qkv qkv = Prepare(ctx, Project(ctx, x), {.values = cache.positions()});
  const absl::Span<const AttentionSegment> segments = cache.Append(ctx, layer_, qkv.k, qkv.v);
  const ops::Qkv cached = {.q = qkv.q, .k = cache.keys(layer_), .v = cache.values(layer_)};
  return Output(
      ctx, x, ops::Attention(ctx, AttentionOf(cached), segments, cached, ValueOf(sinks_), false).o,
      nullptr);
}

}  // namespace headwise
