#include "model/norm_site.h"

#include "model/layer_ops.h"

namespace headwise {

NormSite::NormSite(const NormConfig& config, const std::string& name, const Dim& width,
                   ParameterStore& store)
    : present_(config.style() != NORM_ABSENT), op_(RmsNormOf(config)) {
  if (op_.style != RmsNormStyle::kScaleless) {
    weight_ = store.Add(name + ".weight", ParameterRole::kNorm, {width},
                        Init::Constant(config.initial_weight()));
  }
}

Tensor NormSite::Forward(const OpContext& ctx, const Tensor& x) const {
  if (!present_) return x;
  return ops::RmsNorm(ctx, op_, x, weight_ == nullptr ? Tensor() : weight_->value);
}

Tensor NormSite::Backward(const OpContext& ctx, const Tensor& x, const Tensor& dy) const {
  if (!present_) return dy;
  Tensor none;
  return ops::RmsNormBackward(ctx, op_, x, weight_ == nullptr ? Tensor() : weight_->value, dy,
                              weight_ == nullptr ? none : weight_->gradient);
}

}  // namespace headwise
