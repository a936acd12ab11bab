#include "model/moe_block.h"

#include <utility>

#include "model/initial_std.h"

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

Tensor MoeBlock::Projection::Forward(const OpContext& ctx, const ops::Routing& routing,
                                     const Tensor& x) const {
  return ops::ExpertLinear(ctx, routing, x, weight.compute, ValueOf(bias));
}

void MoeBlock::Projection::BackwardWeight(const OpContext& ctx, const ops::Routing& routing,
                                          const Tensor& dy, const Tensor& x) const {
  ops::ExpertLinearBackwardWeight(ctx, routing, dy, x, weight.parameter->gradient);
  if (bias != nullptr) ops::ExpertLinearBackwardBias(ctx, routing, dy, bias->gradient);
}

MoeBlock::MoeBlock(const ModelConfig& config, std::int64_t layer, const std::string& name,
                   ParameterStore& store)
    : router_op_(RouterOf(config.ffn().moe())),
      activation_(SwigluOf(config.ffn())),
      auxiliary_weight_(config.ffn().moe().auxiliary_loss_weight()) {
  const MoeConfig& moe = config.ffn().moe();
  const std::int64_t dim = config.dim(), experts = moe.num_experts();
  const std::int64_t width = moe.expert_width() == 0 ? dim : moe.expert_width();
  const Init input = Init::Truncated(config.init().linear_std());
  const Init residual = Init::Truncated(ResidualStd(config.init(), layer));
  const auto bias = [&](const std::string& full, Shape shape) {
    return store.Add(full, ParameterRole::kBias, std::move(shape), Init::Constant(0));
  };
  const auto add = [&](const char* part, std::int64_t out, std::int64_t in, Init init) {
    Projection projection;
    projection.weight = store.AddExperts(name + part, experts, out, in, init);
    if (config.ffn().bias()) projection.bias = bias(name + part + "_bias", {experts, out});
    return projection;
  };

  router_ = store.AddLinear(name + ".router", ParameterRole::kRouter, experts, dim, input);
  if (moe.router_bias()) router_bias_ = bias(name + ".router_bias", {experts});
  if (moe.balancing() == BALANCING_BIAS) {
    balancing_bias_ = store.Add(name + ".balancing_bias", ParameterRole::kBalancingBias, {experts},
                                Init::Constant(0));
  }
  if (moe.expert_width() != 0) {
    down_ = store.AddLinear(name + ".pre_expert_proj", ParameterRole::kMlp, width, dim, input);
  }
  pre_norm_.emplace(moe.pre_expert_norm(), name + ".pre_expert_norm", width, store);
  w1_ = add(".w1", moe.expert_dim(), width, input);
  w3_ = add(".w3", moe.expert_dim(), width, residual);
  w2_ = add(".w2", width, moe.expert_dim(), residual);
  post_norm_.emplace(moe.post_expert_norm(), name + ".post_expert_norm", width, store);
  if (moe.expert_width() != 0) {
    up_ = store.AddLinear(name + ".post_expert_proj", ParameterRole::kMlp, dim, width, residual);
  }
  if (moe.shared_dim() != 0) {
    shared_.emplace(config, layer, name + ".shared", moe.shared_dim(), store);
  }
}

Tensor MoeBlock::Forward(const OpContext& ctx, const Tensor& x, Saved* saved,
                         double* auxiliary_loss) const {
  Tensor logits = ctx.Empty({x.dim(0), router_.compute.dim(0)}, ctx.master());
  ops::LinearToMaster(ctx, x, router_.compute, ValueOf(router_bias_), logits);
  ops::Routing routing = ops::Route(ctx, router_op_, logits, ValueOf(balancing_bias_));
  if (auxiliary_weight_ != 0 && auxiliary_loss != nullptr) {
    *auxiliary_loss += auxiliary_weight_ * static_cast<double>(x.dim(0)) *
                       ops::BalancingLoss(ctx, logits, routing);
  }
  Tensor down = narrow() ? ops::Linear(ctx, x, down_.compute, {}) : Tensor();
  Tensor rows = ops::DispatchTokens(ctx, routing, pre_norm_->Forward(ctx, narrow() ? down : x));
  Tensor gate = w1_.Forward(ctx, routing, rows);
  Tensor up = w3_.Forward(ctx, routing, rows);
  rows = Tensor();
  Tensor outputs = w2_.Forward(ctx, routing, ops::Swiglu(ctx, activation_, gate, up));
  Tensor combined = ops::CombineExperts(ctx, routing, post_norm_->Forward(ctx, outputs));
  const Tensor y = narrow() ? ops::Linear(ctx, combined, up_.compute, {}) : combined;
  if (shared_.has_value()) {
    ops::AddInPlace(ctx, y, shared_->Forward(ctx, x, saved == nullptr ? nullptr : &saved->shared));
  }
  if (saved != nullptr) {
    saved->logits = std::move(logits);
    saved->routing = std::move(routing);
    saved->narrow = std::move(down);
    saved->gate = std::move(gate);
    saved->up = std::move(up);
    saved->outputs = std::move(outputs);
    if (narrow()) saved->combined = std::move(combined);
  }
  return y;
}

Tensor MoeBlock::RouterBackward(const OpContext& ctx, const Tensor& x, const Saved& saved,
                                const Tensor& dweights, double loss_scale) const {
  const Tensor dlogits = ops::RouteBackward(ctx, router_op_, saved.logits, saved.routing, dweights);
  if (auxiliary_weight_ != 0) {
    ops::AddBalancingGradient(ctx, saved.logits, saved.routing,
                              loss_scale * auxiliary_weight_ * static_cast<double>(x.dim(0)),
                              dlogits);
  }
  Tensor dz = dlogits;
  if (ctx.master() != ctx.compute) {
    dz = ctx.Empty(dlogits.shape());
    ops::Convert(ctx, dlogits, dz);
  }
  ops::LinearBackwardWeight(ctx, dz, x, router_.parameter->gradient);
  if (router_bias_ != nullptr) ops::LinearBackwardBias(ctx, dz, router_bias_->gradient);
  return ops::LinearBackwardInput(ctx, dz, router_.compute);
}

Tensor MoeBlock::Backward(const OpContext& ctx, const Tensor& x, const Tensor& dy,
                          double loss_scale, Saved saved) const {
  const ops::Routing& routing = saved.routing;
  if (balancing_bias_ != nullptr) ops::CountLoads(ctx, routing, balancing_bias_->gradient);
  Tensor dcombined = dy;
  if (narrow()) {
    ops::LinearBackwardWeight(ctx, dy, saved.combined, up_.parameter->gradient);
    dcombined = ops::LinearBackwardInput(ctx, dy, up_.compute);
  }
  ops::ExpertGradients d =
      ops::CombineExpertsBackward(ctx, routing, post_norm_->Forward(ctx, saved.outputs), dcombined);
  const Tensor doutputs = post_norm_->Backward(ctx, saved.outputs, d.outputs);
  d.outputs = saved.outputs = dcombined = Tensor();

  w2_.BackwardWeight(ctx, routing, doutputs, ops::Swiglu(ctx, activation_, saved.gate, saved.up));
  ops::SwigluBackwardInPlace(
      ctx, activation_, saved.gate, saved.up,
      ops::ExpertLinearBackwardInput(ctx, routing, doutputs, w2_.weight.compute));
  const Tensor& dgate = saved.gate;
  const Tensor& dup = saved.up;
  {
    const Tensor rows =
        ops::DispatchTokens(ctx, routing, pre_norm_->Forward(ctx, narrow() ? saved.narrow : x));
    w1_.BackwardWeight(ctx, routing, dgate, rows);
    w3_.BackwardWeight(ctx, routing, dup, rows);
  }
  Tensor drows = ops::ExpertLinearBackwardInput(ctx, routing, dgate, w1_.weight.compute);
  ops::AddInPlace(ctx, drows,
                  ops::ExpertLinearBackwardInput(ctx, routing, dup, w3_.weight.compute));
  Tensor dx = pre_norm_->Backward(ctx, narrow() ? saved.narrow : x,
                                  ops::DispatchTokensBackward(ctx, routing, drows));
  drows = Tensor();
  if (narrow()) {
    ops::LinearBackwardWeight(ctx, dx, x, down_.parameter->gradient);
    dx = ops::LinearBackwardInput(ctx, dx, down_.compute);
  }
  ops::AddInPlace(ctx, dx, RouterBackward(ctx, x, saved, d.weights, loss_scale));
  if (shared_.has_value()) {
    ops::AddInPlace(ctx, dx, shared_->Backward(ctx, x, dy, std::exchange(saved.shared, {})));
  }
  return dx;
}

}  // namespace headwise
