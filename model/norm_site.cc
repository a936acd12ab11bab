#include "model/norm_site.h"

namespace headwise {
namespace {

RmsNormStyle Style(NormStyle style) {
  switch (style) {
    case RMS:
      return RmsNormStyle::kWeighted;
    case RMS_GAIN_CENTERED:
      return RmsNormStyle::kGainCentered;
    case RMS_INPUT_SCALED:
      return RmsNormStyle::kInputScaled;
    default:
      return RmsNormStyle::kScaleless;  // NORM_ABSENT: not used
  }
}

}  // namespace

NormSite::NormSite(const NormConfig& config, const std::string& name, const Dim& width,
                   ParameterStore& store)
    : present_(config.style() != NORM_ABSENT),
      op_{.style = Style(config.style()),
          .epsilon = static_cast<float>(config.epsilon()),
          .centre = static_cast<float>(config.centre())} {
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
