#include "model/layer_ops.h"

namespace headwise {
namespace {

RmsNormStyle StyleOf(NormStyle style) {
  switch (style) {
    case RMS:
      return RmsNormStyle::kWeighted;
    case RMS_GAIN_CENTERED:
      return RmsNormStyle::kGainCentered;
    case RMS_INPUT_SCALED:
      return RmsNormStyle::kInputScaled;
    default:
      return RmsNormStyle::kScaleless;
  }
}

}  // namespace

RmsNorm RmsNormOf(const NormConfig& config) {
  return {.style = StyleOf(config.style()),
          .epsilon = static_cast<float>(config.epsilon()),
          .centre = static_cast<float>(config.centre())};
}

Swiglu SwigluOf(const FfnConfig& config) {
  if (config.activation() != CLAMPED_SWIGLU) return {};
  return {.clamped = true, .alpha = config.activation_alpha(), .limit = config.activation_limit()};
}

}  // namespace headwise
