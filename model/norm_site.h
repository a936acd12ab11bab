// NormSite: one place in the decoder where a norm may stand. An absent norm is the identity and
// costs nothing.
#ifndef HEADWISE_MODEL_NORM_SITE_H_
#define HEADWISE_MODEL_NORM_SITE_H_

#include <cstdint>
#include <string>

#include "core/proto/config.pb.h"
#include "kernels/rms_norm/rms_norm.h"
#include "model/ops.h"
#include "model/parameter_store.h"

namespace headwise {

class NormSite {
 public:
  // Makes the parameter `name`.weight [width] if the style has one.
  NormSite(const NormConfig& config, const std::string& name, const Dim& width,
           ParameterStore& store);

  bool present() const { return present_; }

  // norm(x) [T, N]; x itself where the norm is absent.
  Tensor Forward(const OpContext& ctx, const Tensor& x) const;
  // The gradient of x from that of norm(x), dy itself where the norm is absent; overwrites the
  // weight's gradient.
  Tensor Backward(const OpContext& ctx, const Tensor& x, const Tensor& dy) const;

 private:
  bool present_;
  RmsNorm op_;
  Parameter* weight_ = nullptr;  // null: absent or scaleless
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_NORM_SITE_H_
