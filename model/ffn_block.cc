#include "model/ffn_block.h"

#include "model/initial_std.h"

namespace headwise {

FfnBlock::FfnBlock(const ModelConfig& config, std::int64_t layer, const std::string& name,
                   ParameterStore& store) {
  const std::int64_t dim = config.dim();
  const std::int64_t hidden = config.ffn().hidden_dim();
  const Init input = Init::Truncated(config.init().linear_std());
  const Init residual = Init::Truncated(ResidualStd(config.init(), layer));
  w1_ = store.AddLinear(name + ".w1", ParameterRole::kMlp, hidden, dim, input);
  w3_ = store.AddLinear(name + ".w3", ParameterRole::kMlp, hidden, dim, residual);
  w2_ = store.AddLinear(name + ".w2", ParameterRole::kMlp, dim, hidden, residual);
}

Tensor FfnBlock::Forward(const OpContext& ctx, const Tensor& x, Saved* saved) const {
  Tensor gate = ops::Linear(ctx, x, w1_.compute, {});
  Tensor up = ops::Linear(ctx, x, w3_.compute, {});
  const Tensor hidden = ops::Swiglu(ctx, gate, up);
  if (saved != nullptr) *saved = {.gate = std::move(gate), .up = std::move(up)};
  return ops::Linear(ctx, hidden, w2_.compute, {});
}

Tensor FfnBlock::Backward(const OpContext& ctx, const Tensor& x, const Tensor& dy,
                          Saved saved) const {
  {
    const Tensor hidden = ops::Swiglu(ctx, saved.gate, saved.up);
    ops::LinearBackwardWeight(ctx, dy, hidden, w2_.parameter->gradient);
  }
  const Tensor dhidden = ops::LinearBackwardInput(ctx, dy, w2_.compute);
  ops::SwigluBackwardInPlace(ctx, saved.gate, saved.up, dhidden);
  const Tensor& dgate = saved.gate;
  const Tensor& dup = saved.up;
  ops::LinearBackwardWeight(ctx, dgate, x, w1_.parameter->gradient);
  ops::LinearBackwardWeight(ctx, dup, x, w3_.parameter->gradient);
  const Tensor dx = ops::LinearBackwardInput(ctx, dgate, w1_.compute);
  ops::AddInPlace(ctx, dx, ops::LinearBackwardInput(ctx, dup, w3_.compute));
  return dx;
}

}  // namespace headwise
