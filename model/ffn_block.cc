#include "model/ffn_block.h"

#include <utility>

#include "model/initial_std.h"
#include "model/layer_ops.h"

namespace headwise {

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
  const Dim inner = {{"F", width}}, outer = {{"N", config.dim()}};
  const auto add = [&](const char* part, const Dim& out, const Dim& in, Init init) {
    const std::string full = name + part;
    Projection projection;
    projection.weight = store.AddLinear(full, ParameterRole::kMlp, {out, in}, init);
    if (config.ffn().bias()) {
      projection.bias = store.Add(full + "_bias", ParameterRole::kBias, {out}, Init::Constant(0));
    }
    return projection;
  };
  w1_ = add(".w1", inner, outer, input);
  w3_ = add(".w3", inner, outer, residual);
  w2_ = add(".w2", outer, inner, residual);
}

Tensor FfnBlock::Forward(const OpContext& ctx, const Tensor& x, Saved* saved) const {
  const Tensor in = ops::Cross(ctx, "in", x);
  Tensor gate = w1_.Forward(ctx, in);
  Tensor up = w3_.Forward(ctx, in);
  const Tensor hidden = ops::Swiglu(ctx, activation_, gate, up);
  if (saved != nullptr) *saved = {.gate = std::move(gate), .up = std::move(up)};
  const bool bias_after = w2_.bias != nullptr && ops::Communicates(ctx, "out");
  Tensor bias;
  if (w2_.bias != nullptr && !bias_after) bias = ops::Cross(ctx, "w2_bias", w2_.bias->value);
  const Tensor out = ops::Cross(ctx, "out", ops::Linear(ctx, hidden, w2_.weight.compute, bias));
  return bias_after ? ops::AddBias(ctx, out, w2_.bias->value) : out;
}

Tensor FfnBlock::Backward(const OpContext& ctx, const Tensor& x, const Tensor& dy,
                          Saved saved) const {
  if (w2_.bias != nullptr) {
    ops::LinearBackwardBias(ctx, dy, w2_.bias->gradient);
    if (!ops::Communicates(ctx, "out")) ops::CrossGradient(ctx, "w2_bias", w2_.bias->gradient);
  }
  const Tensor dout = ops::CrossBackward(ctx, "out", dy);
  ops::LinearBackwardWeight(ctx, dout, ops::Swiglu(ctx, activation_, saved.gate, saved.up),
                            w2_.weight.parameter->gradient);
  const Tensor dhidden = ops::LinearBackwardInput(ctx, dout, w2_.weight.compute);
  const ops::GateGradients d =
      ops::SwigluBackwardInPlace(ctx, activation_, saved.gate, saved.up, dhidden);
  const Tensor in = ops::Cross(ctx, "in", x);
  w1_.BackwardWeight(ctx, d.gate, in);
  w3_.BackwardWeight(ctx, d.x, in);
  Tensor dx = ops::LinearBackwardInput(ctx, d.gate, w1_.weight.compute);
  dx = ops::AddInPlace(ctx, dx, ops::LinearBackwardInput(ctx, d.x, w3_.weight.compute));
  return ops::CrossBackward(ctx, "in", dx);
}

}  // namespace headwise
