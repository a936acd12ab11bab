#include "model/output_head.h"

namespace headwise {
OutputHead::OutputHead(const ModelConfig& config, const LinearWeight& embedding,
                       ParameterStore& store)
    : norm_(config.final_norm(), "final_norm", {{"N", config.dim()}}, store),
      weight_(config.tied_head()
                  ? embedding
                  : store.AddLinear("head.weight", ParameterRole::kOutputHead,
                                    {{{"V", config.vocab_size()}}, {{"N", config.dim()}}},
                                    Init::Truncated(config.init().head_std()))),
      transform_{.multiplier = config.logit_multiplier(), .cap = config.logit_cap()} {}

Tensor OutputHead::Logits(const OpContext& ctx, const Tensor& h) const {
  const Tensor z = ops::LinearToMaster(ctx, norm_.Forward(ctx, h), weight_.compute, {});
  ops::TransformLogitsInPlace(ctx, transform_, z);
  return z;
}

void OutputHead::Loss(const OpContext& ctx, const Tensor& h, const ops::TokenIds& targets,
                      const ops::LossScale& scale, double* loss, Tensor* dh) const {
  const ModuleScope scope(ctx.sharding, "head");
  const Tensor x = ops::Cross(ctx, "in", norm_.Forward(ctx, h));
  const ops::HeadLoss head =
      ops::LinearCrossEntropy(ctx, transform_, x, weight_.compute, targets, scale, dh != nullptr);
  if (dh != nullptr) {
    ops::LinearBackwardWeight(ctx, head.dz, x, weight_.parameter->gradient);
    const Tensor dx =
        ops::CrossBackward(ctx, "in", ops::LinearBackwardInput(ctx, head.dz, weight_.compute));
    *dh = norm_.Backward(ctx, h, dx);
    ops::NoteDual(ctx, *dh, h);
  }
  ops::SumLosses(ctx, head.losses, loss);
}

}  // namespace headwise
