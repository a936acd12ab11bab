// ResidualSite: one place where a branch joins the residual stream.
//
//   plain   out = h + branch
//   gated   out = alpha h + beta branch, a learned gate per element (kernels/elementwise/residual_gate.h)
#ifndef HEADWISE_MODEL_RESIDUAL_SITE_H_
#define HEADWISE_MODEL_RESIDUAL_SITE_H_

#include <string>

#include "core/proto/config.pb.h"
#include "kernels/elementwise/residual_gate.h"
#include "model/ops.h"
#include "model/parameter_store.h"

namespace headwise {

class ResidualSite {
 public:
  // Makes the parameter `name` [N] if the config asks for gates.
  ResidualSite(const ModelConfig& config, const std::string& name, ParameterStore& store);

  bool gated() const { return gate_ != nullptr; }

  // h, branch [T, N] -> [T, N]; plain: in the place of the branch, which no one else may hold.
  Tensor Forward(const OpContext& ctx, const Tensor& h, const Tensor& branch) const;
  // From dout; overwrites the gate's gradient. Plain: both are dout itself, and h and branch may be
  // undefined.
  ops::ResidualGradients Backward(const OpContext& ctx, const Tensor& h, const Tensor& branch,
                                  const Tensor& dout) const;

 private:
  ResidualGate op_;
  Parameter* gate_ = nullptr;  // null: plain
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_RESIDUAL_SITE_H_
