#include "model/residual_site.h"

namespace headwise {

ResidualSite::ResidualSite(const ModelConfig& config, const std::string& name,
                           ParameterStore& store)
    : op_{.temperature = config.residual_gate_temperature()} {
  if (config.residual_gate_temperature() == 0) return;
  gate_ = store.Add(name, ParameterRole::kNorm, {{{"N", config.dim()}}},
                    Init::Normal(config.init().linear_std()));
}

Tensor ResidualSite::Forward(const OpContext& ctx, const Tensor& h, const Tensor& branch) const {
  if (gate_ != nullptr) return ops::GatedResidual(ctx, op_, h, branch, gate_->value);
  return ops::AddInPlace(ctx, branch, h);
}

ops::ResidualGradients ResidualSite::Backward(const OpContext& ctx, const Tensor& h,
                                              const Tensor& branch, const Tensor& dout) const {
  if (gate_ == nullptr) return {.h = dout, .branch = dout};
  return ops::GatedResidualBackward(ctx, op_, h, branch, gate_->value, dout, gate_->gradient);
}

}  // namespace headwise
