#include "model/moe_block.h"

#include <utility>
#include <vector>

#include "model/initial_std.h"
#include "model/layer_ops.h"

namespace headwise {
namespace {

Tensor ValueOf(const Parameter* parameter) {
  return parameter == nullptr ? Tensor() : parameter->value;
}

Router RouterOf(const MoeConfig& moe) {
  return {.chosen = moe.experts_per_token(),
          .score = moe.score() == ROUTER_SIGMOID ? RouterScore::kSigmoid : RouterScore::kSoftmax,
          .normalize = moe.normalize(),
          .scale = moe.scaling_factor(),
          .multiplier = moe.router_multiplier()};
}

}  // namespace

Tensor MoeBlock::Projection::Forward(const OpContext& ctx, const ops::ExpertRows& rows,
                                     const Tensor& x) const {
  return ops::ExpertLinear(ctx, rows, x, weight.compute, ValueOf(bias));
}

void MoeBlock::Projection::BackwardWeight(const OpContext& ctx, const ops::ExpertRows& rows,
                                          const Tensor& dy, const Tensor& x) const {
  ops::ExpertLinearBackwardWeight(ctx, rows, dy, x, weight.parameter->gradient);
  if (bias != nullptr) ops::ExpertLinearBackwardBias(ctx, rows, dy, bias->gradient);
}

MoeBlock::MoeBlock(const ModelConfig& config, std::int64_t layer, const std::string& name,
                   ParameterStore& store)
    : router_op_(RouterOf(config.ffn().moe())),
      activation_(SwigluOf(config.ffn())),
      auxiliary_weight_(config.ffn().moe().auxiliary_loss_weight()) {
  const MoeConfig& moe = config.ffn().moe();
  const bool narrow = moe.expert_width() != 0;
  const Dim outer = {{"N", config.dim()}};
  const Dim width = narrow ? Dim{{"W", moe.expert_width()}} : outer;
  const Dim experts = {{"E", moe.num_experts()}}, inner = {{"F", moe.expert_dim()}};
  const Init input = Init::Truncated(config.init().linear_std());
  const Init residual = Init::Truncated(ResidualStd(config.init(), layer));
  const auto bias = [&](const std::string& full, const std::vector<Dim>& shape) {
    return store.Add(full, ParameterRole::kBias, shape, Init::Constant(0));
  };
  const auto add = [&](const char* part, const Dim& out, const Dim& in, Init init) {
    Projection projection;
    projection.weight =
        store.AddLinear(name + part, ParameterRole::kExpert, {experts, out, in}, init);
    if (config.ffn().bias()) projection.bias = bias(name + part + "_bias", {experts, out});
    return projection;
  };

  router_ = store.AddLinear(name + ".router", ParameterRole::kRouter, {experts, outer}, input);
  if (moe.router_bias()) router_bias_ = bias(name + ".router_bias", {experts});
  if (moe.balancing() == BALANCING_BIAS) {
    balancing_bias_ = store.Add(name + ".balancing_bias", ParameterRole::kBalancingBias, {experts},
                                Init::Constant(0));
  }
  if (narrow) {
    down_ = store.AddLinear(name + ".pre_expert_proj", ParameterRole::kMlp, {width, outer}, input);
  }
  pre_norm_.emplace(moe.pre_expert_norm(), name + ".pre_expert_norm", width, store);
  w1_ = add(".w1", inner, width, input);
  w3_ = add(".w3", inner, width, residual);
  w2_ = add(".w2", width, inner, residual);
  post_norm_.emplace(moe.post_expert_norm(), name + ".post_expert_norm", width, store);
  if (narrow) {
    up_ =
        store.AddLinear(name + ".post_expert_proj", ParameterRole::kMlp, {outer, width}, residual);
  }
  if (moe.shared_dim() != 0) {
    shared_.emplace(config, layer, name + ".shared", moe.shared_dim(), store);
  }
}

Tensor MoeBlock::BalancingLoads(const OpContext& ctx, const Tensor& logits,
                                const ops::Routing& routing) const {
  return ops::Cross(ctx, "balancing",
                    ops::Cross(ctx, "loads", ops::CountLoads(ctx, logits, routing)));
}

Tensor MoeBlock::Forward(const OpContext& ctx, const Tensor& x, Saved* saved,
                         double* auxiliary_loss) const {
  const Tensor in = ops::Cross(ctx, "in", x);
  Tensor logits = ops::LinearToMaster(ctx, in, router_.compute, ValueOf(router_bias_));
  ops::Routing routing = ops::Route(ctx, router_op_, logits, ValueOf(balancing_bias_));
  if (auxiliary_weight_ != 0 && auxiliary_loss != nullptr) {
    const std::int64_t tokens = ops::TokensOfAllRanks(ctx, logits);
    ops::AddBalancingLoss(ctx, logits, BalancingLoads(ctx, logits, routing), tokens,
                          auxiliary_weight_ * static_cast<double>(tokens), auxiliary_loss);
  }
  ExpertExchange exchange(routing);
  Tensor down;
  if (narrow()) down = ops::Cross(ctx, "narrow", ops::Linear(ctx, in, down_.compute, {}));
  Tensor rows = exchange.ToExperts(
      ctx, ops::DispatchTokens(ctx, routing, pre_norm_->Forward(ctx, narrow() ? down : in)));
  Tensor gate = w1_.Forward(ctx, exchange.rows(), rows);
  Tensor up = w3_.Forward(ctx, exchange.rows(), rows);
  rows = Tensor();
  Tensor outputs = ops::Cross(
      ctx, "experts_out",
      ops::ExpertLinear(
          ctx, exchange.rows(), ops::Swiglu(ctx, activation_, gate, up), w2_.weight.compute,
          w2_.bias == nullptr ? Tensor() : ops::Cross(ctx, "w2_bias", w2_.bias->value)));
  Tensor combined =
      ops::CombineExperts(ctx, routing, exchange.ToTokens(ctx, post_norm_->Forward(ctx, outputs)));
  if (narrow()) combined = ops::Cross(ctx, "wide", combined);
  Tensor y = narrow() ? ops::Linear(ctx, combined, up_.compute, {}) : combined;
  if (shared_.has_value()) {
    const ModuleScope scope(ctx.sharding, "shared");
    y = ops::AddInPlace(ctx, y,
                        shared_->Forward(ctx, in, saved == nullptr ? nullptr : &saved->shared));
  }
  if (saved != nullptr) {
    saved->logits = std::move(logits);
    saved->routing = std::move(routing);
    saved->exchange = std::move(exchange);
    saved->narrow = std::move(down);
    saved->gate = std::move(gate);
    saved->up = std::move(up);
    saved->outputs = std::move(outputs);
    if (narrow()) saved->combined = std::move(combined);
  }
  return ops::Cross(ctx, "out", y);
}

Tensor MoeBlock::RouterBackward(const OpContext& ctx, const Tensor& in, const Saved& saved,
                                const Tensor& dweights, const ops::LossScale& scale) const {
  Tensor dlogits = ops::RouteBackward(ctx, router_op_, saved.logits, saved.routing, dweights);
  if (auxiliary_weight_ != 0) {
    const std::int64_t tokens = ops::TokensOfAllRanks(ctx, saved.logits);
    dlogits = ops::AddBalancingGradient(ctx, saved.logits,
                                        BalancingLoads(ctx, saved.logits, saved.routing), tokens,
                                        auxiliary_weight_, scale, dlogits);
  }
  Tensor none;
  return ops::LinearBackwardFromMaster(ctx, dlogits, in, router_.compute,
                                       router_.parameter->gradient,
                                       router_bias_ == nullptr ? none : router_bias_->gradient);
}

Tensor MoeBlock::Backward(const OpContext& ctx, const Tensor& x, const Tensor& dy,
                          const ops::LossScale& scale, Saved saved) const {
  const ops::Routing& routing = saved.routing;
  ExpertExchange& exchange = saved.exchange;
  if (balancing_bias_ != nullptr) {
    const Tensor loads = ops::Cross(ctx, "loads", ops::CountLoads(ctx, saved.logits, routing));
    ops::CopyGradient(ctx, loads, balancing_bias_->gradient);
  }
  const Tensor in = ops::Cross(ctx, "in", x);
  const Tensor dout = ops::CrossBackward(ctx, "out", dy);
  Tensor dcombined = dout;
  if (narrow()) {
    ops::LinearBackwardWeight(ctx, dout, saved.combined, up_.parameter->gradient);
    dcombined = ops::CrossBackward(ctx, "wide", ops::LinearBackwardInput(ctx, dout, up_.compute));
  }
  // Experts' outputs as the tokens' ranks weighted them.
  ops::ExpertGradients d = ops::CombineExpertsBackward(
      ctx, routing, exchange.ToTokens(ctx, post_norm_->Forward(ctx, saved.outputs)), dcombined);
  Tensor doutputs =
      post_norm_->Backward(ctx, saved.outputs, exchange.ToTokensBackward(ctx, d.outputs));
  d.outputs = saved.outputs = dcombined = Tensor();
  doutputs = ops::CrossBackward(ctx, "experts_out", doutputs);

  w2_.BackwardWeight(ctx, exchange.rows(), doutputs,
                     ops::Swiglu(ctx, activation_, saved.gate, saved.up));
  if (w2_.bias != nullptr) ops::CrossGradient(ctx, "w2_bias", w2_.bias->gradient);
  const ops::GateGradients dhidden = ops::SwigluBackwardInPlace(
      ctx, activation_, saved.gate, saved.up,
      ops::ExpertLinearBackwardInput(ctx, exchange.rows(), doutputs, w2_.weight.compute));
  {
    const Tensor rows = exchange.ToExperts(
        ctx,
        ops::DispatchTokens(ctx, routing, pre_norm_->Forward(ctx, narrow() ? saved.narrow : in)));
    w1_.BackwardWeight(ctx, exchange.rows(), dhidden.gate, rows);
    w3_.BackwardWeight(ctx, exchange.rows(), dhidden.x, rows);
  }
  Tensor drows =
      ops::ExpertLinearBackwardInput(ctx, exchange.rows(), dhidden.gate, w1_.weight.compute);
  drows = ops::AddInPlace(
      ctx, drows,
      ops::ExpertLinearBackwardInput(ctx, exchange.rows(), dhidden.x, w3_.weight.compute));
  drows = exchange.ToExpertsBackward(ctx, drows);
  Tensor dx = pre_norm_->Backward(ctx, narrow() ? saved.narrow : in,
                                  ops::DispatchTokensBackward(ctx, routing, drows));
  drows = Tensor();
  if (narrow()) {
    dx = ops::CrossBackward(ctx, "narrow", dx);
    ops::LinearBackwardWeight(ctx, dx, in, down_.parameter->gradient);
    dx = ops::LinearBackwardInput(ctx, dx, down_.compute);
  }
  dx = ops::AddInPlace(ctx, dx, RouterBackward(ctx, in, saved, d.weights, scale));
  if (shared_.has_value()) {
    const ModuleScope scope(ctx.sharding, "shared");
    dx =
        ops::AddInPlace(ctx, dx, shared_->Backward(ctx, in, dout, std::exchange(saved.shared, {})));
  }
  return ops::CrossBackward(ctx, "in", dx);
}

}  // namespace headwise
