#include "model/ffn_block.h"

#include "model/initial_std.h"

namespace headwise {

Swiglu SwigluOf(const FfnConfig& config) {
  if (config.activation() != CLAMPED_SWIGLU) return {};
  return {.clamped = true, .alpha = config.activation_alpha(), .limit = config.activation_limit()};
}

Tensor FfnBlock::Projection::Forward(const OpContext& ctx, const Tensor& x) const {
  return ops::Linear(ctx, x, weight.compute, bias == nullptr ? Tensor() : bias->value);
}

void FfnBlock::Projection::BackwardWeight(const OpContext& ctx, const Tensor& dy,
                                          const Tensor& x) const {
  ops::LinearBackwardWeight(ctx, dy, x, weight.parameter->gradient);
  if (bias != nullptr) ops::LinearBackwardBias(ctx, dy, bias->gradient);
}

FfnBlock::FfnBlock(const ModelConfig& config, std::int64_t layer, const std::string& name,
                   std::int64_t width, ParameterStore& store)
    : activation_(SwigluOf(config.ffn())) {
  const Init input = Init::Truncated(config.init().linear_std());
  const Init residual = Init::Truncated(ResidualStd(config.init(), layer));
  const auto add = [&](const char* part, std::int64_t out, std::int64_t in, Init init) {
    const std::string full = name + part;
    Projection projection;
    projection.weight = store.AddLinear(full, ParameterRole::kMlp, out, in, init);
    if (config.ffn().bias()) {
      projection.bias = store.Add(full + "_bias", ParameterRole::kBias, {out}, Init::Constant(0));
    }
    return projection;
  };
  w1_ = add(".w1", width, config.dim(), input);
  w3_ = add(".w3", width, config.dim(), residual);
  w2_ = add(".w2", config.dim(), width, residual);
}

Tensor FfnBlock::Forward(const OpContext& ctx, const Tensor& x, Saved* saved) const {
  Tensor gate = w1_.Forward(ctx, x);
  Tensor up = w3_.Forward(ctx, x);
  const Tensor hidden = ops::Swiglu(ctx, activation_, gate, up);
  if (saved != nullptr) *saved = {.gate = std::move(gate), .up = std::move(up)};
  return w2_.Forward(ctx, hidden);
}

Tensor FfnBlock::Backward(const OpContext& ctx, const Tensor& x, const Tensor& dy,
                          Saved saved) const {
  w2_.BackwardWeight(ctx, dy, ops::Swiglu(ctx, activation_, saved.gate, saved.up));
  const Tensor dhidden = ops::LinearBackwardInput(ctx, dy, w2_.weight.compute);
  ops::SwigluBackwardInPlace(ctx, activation_, saved.gate, saved.up, dhidden);
  const Tensor& dgate = saved.gate;
  const Tensor& dup = saved.up;
  w1_.BackwardWeight(ctx, dgate, x);
  w3_.BackwardWeight(ctx, dup, x);
  const Tensor dx = ops::LinearBackwardInput(ctx, dgate, w1_.weight.compute);
  ops::AddInPlace(ctx, dx, ops::LinearBackwardInput(ctx, dup, w3_.weight.compute));
  return dx;
}

}  // namespace headwise
