#include "model/layer.h"

#include <optional>
#include <string>
#include <utility>

#include "model/config.h"

namespace headwise {
namespace {

std::string LayerName(std::int64_t layer) { return "layers." + std::to_string(layer); }

std::string ParameterName(std::int64_t layer, const char* part) {
  return LayerName(layer) + "." + part;
}

Dim Width(const ModelConfig& config) { return {{"N", config.dim()}}; }

std::optional<FfnBlock> MakeDense(const ModelConfig& config, std::int64_t index,
                                  ParameterStore& store) {
  if (LayerHasExperts(config, index)) return std::nullopt;
  return FfnBlock(config, index, ParameterName(index, "ffn"), config.ffn().hidden_dim(), store);
}

std::optional<MoeBlock> MakeExperts(const ModelConfig& config, std::int64_t index,
                                    ParameterStore& store) {
  if (!LayerHasExperts(config, index)) return std::nullopt;
  return MoeBlock(config, index, ParameterName(index, "ffn"), store);
}

// What joins the residual stream, of a branch before its norm; undefined where nothing needs it.
Tensor JoinedBranch(const OpContext& ctx, const ResidualSite& residual, const NormSite& norm,
                    const Tensor& branch) {
  return residual.gated() ? norm.Forward(ctx, branch) : Tensor();
}

}  // namespace

Layer::Layer(const ModelConfig& config, std::int64_t index, const RotaryTable* rotary,
             ParameterStore& store)
    : name_(LayerName(index)),
      first_parameter_(store.parameters().size()),
      attention_norm_(config.attention_norm(), ParameterName(index, "attention_norm"),
                      Width(config), store),
      attention_(config, index, ParameterName(index, "attention"), rotary, store),
      post_attention_norm_(config.post_attention_norm(),
                           ParameterName(index, "post_attention_norm"), Width(config), store),
      attention_residual_(config, ParameterName(index, "attention_residual_gate"), store),
      ffn_norm_(config.ffn_norm(), ParameterName(index, "ffn_norm"), Width(config), store),
      ffn_(MakeDense(config, index, store)),
      experts_(MakeExperts(config, index, store)),
      post_ffn_norm_(config.post_ffn_norm(), ParameterName(index, "post_ffn_norm"), Width(config),
                     store),
      ffn_residual_(config, ParameterName(index, "ffn_residual_gate"), store),
      parameters_(store.parameters().begin() + static_cast<std::ptrdiff_t>(first_parameter_),
                  store.parameters().end()) {}

Tensor Layer::Finish(const OpContext& ctx, const Tensor& h, Tensor attention_out,
                     double* auxiliary_loss, Saved* saved) const {
  // Branches are fresh tensors here (a saved one has gone through its post norm or is gated), so a
  // plain residual is added in place.
  const Tensor middle =
      attention_residual_.Forward(ctx, h, post_attention_norm_.Forward(ctx, attention_out));
  if (saved != nullptr) {
    saved->input = h;
    if (post_attention_norm_.present() || attention_residual_.gated()) {
      saved->attention_out = attention_out;
    }
    saved->middle = middle;
  }
  attention_out = Tensor();

  const Tensor normed = ffn_norm_.Forward(ctx, middle);
  Tensor ffn_out;
  {
    const ModuleScope scope(ctx.sharding, "ffn");
    ffn_out = ffn_.has_value()
                  ? ffn_->Forward(ctx, normed, saved == nullptr ? nullptr : &saved->ffn)
                  : experts_->Forward(ctx, normed, saved == nullptr ? nullptr : &saved->experts,
                                      auxiliary_loss);
  }
  const Tensor out = ffn_residual_.Forward(ctx, middle, post_ffn_norm_.Forward(ctx, ffn_out));
  if (saved != nullptr && (post_ffn_norm_.present() || ffn_residual_.gated())) {
    saved->ffn_out = ffn_out;
  }
  return out;
}

Tensor Layer::Forward(const OpContext& ctx, const Tensor& h, const SequenceInfo& sequence,
                      Saved* saved) const {
  const ModuleScope layer(ctx.sharding, name_);
  const Tensor normed = attention_norm_.Forward(ctx, h);
  Tensor attention_out;
  {
    const ModuleScope scope(ctx.sharding, "attention");
    attention_out =
        attention_.Forward(ctx, normed, sequence, saved == nullptr ? nullptr : &saved->attention);
  }
  return Finish(ctx, h, std::move(attention_out), sequence.auxiliary_loss, saved);
}

Tensor Layer::Extend(const OpContext& ctx, const Tensor& h, KvCache& cache) const {
  return Finish(ctx, h, attention_.Extend(ctx, attention_norm_.Forward(ctx, h), cache), nullptr,
                nullptr);
}

Tensor Layer::FfnBackward(const OpContext& ctx, const Tensor& dout, const SequenceInfo& sequence,
                          Saved& saved) const {
  const ops::ResidualGradients d = ffn_residual_.Backward(
      ctx, saved.middle, JoinedBranch(ctx, ffn_residual_, post_ffn_norm_, saved.ffn_out), dout);
  const Tensor dffn_out = post_ffn_norm_.Backward(ctx, saved.ffn_out, d.branch);
  saved.ffn_out = Tensor();
  const Tensor normed = ffn_norm_.Forward(ctx, saved.middle);
  Tensor dnormed;
  {
    const ModuleScope scope(ctx.sharding, "ffn");
    dnormed = ffn_.has_value() ? ffn_->Backward(ctx, normed, dffn_out, std::exchange(saved.ffn, {}))
                               : experts_->Backward(ctx, normed, dffn_out, sequence.loss_scale,
                                                    std::exchange(saved.experts, {}));
  }
  const Tensor dmiddle = ffn_norm_.Backward(ctx, std::exchange(saved.middle, Tensor()), dnormed);
  return ops::AddInPlace(ctx, dmiddle, d.h);
}

Tensor Layer::AttentionBackward(const OpContext& ctx, const Tensor& dmiddle,
                                const SequenceInfo& sequence, Saved& saved) const {
  const ops::ResidualGradients d = attention_residual_.Backward(
      ctx, saved.input,
      JoinedBranch(ctx, attention_residual_, post_attention_norm_, saved.attention_out), dmiddle);
  const Tensor dattention_out = post_attention_norm_.Backward(ctx, saved.attention_out, d.branch);
  saved.attention_out = Tensor();
  const Tensor normed = attention_norm_.Forward(ctx, saved.input);
  Tensor dnormed;
  {
    const ModuleScope scope(ctx.sharding, "attention");
    dnormed = attention_.Backward(ctx, normed, dattention_out, sequence,
                                  std::exchange(saved.attention, {}));
  }
  const Tensor dh = attention_norm_.Backward(ctx, saved.input, dnormed);
  return ops::AddInPlace(ctx, dh, d.h);
}

Tensor Layer::Backward(const OpContext& ctx, const Tensor& dout, const SequenceInfo& sequence,
                       Saved saved) const {
  Tensor dh;
  {
    const ModuleScope layer(ctx.sharding, name_);
    const Tensor dmiddle = FfnBackward(ctx, dout, sequence, saved);
    dh = AttentionBackward(ctx, dmiddle, sequence, saved);
    ops::NoteDual(ctx, dh, saved.input);
  }
  NoteGradients(ctx.sharding, parameters_);
  return dh;
}

}  // namespace headwise
