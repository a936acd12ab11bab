// layer_ops: the operations that a configuration's norms and FFNs ask for. Configurations are valid
// and resolved (model/config.h); for prepare_qkv, see model/qkv_preparation.h.
#ifndef HEADWISE_MODEL_LAYER_OPS_H_
#define HEADWISE_MODEL_LAYER_OPS_H_

#include "core/proto/config.pb.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/swiglu/swiglu.h"

namespace headwise {

// Of NORM_ABSENT: not to be used.
RmsNorm RmsNormOf(const NormConfig& config);
Swiglu SwigluOf(const FfnConfig& config);

}  // namespace headwise

#endif  // HEADWISE_MODEL_LAYER_OPS_H_
