// The optimizer settings that presets start from.
#ifndef HEADWISE_OPTIM_DEFAULTS_H_
#define HEADWISE_OPTIM_DEFAULTS_H_

#include "core/proto/config.pb.h"

namespace headwise {

// Every field that has a default other than "unset" is set:
//
//   muon      learning rate 0.02, momentum 0.95, Nesterov, no weight decay, one block per head,
//             scale ASPECT
//   adamw     learning rate 3e-3, betas 0.9 and 0.95, epsilon 1e-8, no weight decay
//   schedule  CONSTANT, no warm-up
//   clipping  global norm 1, of AdamW's gradients only
//
// A model without head blocks needs granularity WHOLE_MATRIX on top.
OptimizerConfig DefaultOptimizerConfig();

}  // namespace headwise

#endif  // HEADWISE_OPTIM_DEFAULTS_H_
