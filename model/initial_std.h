// The standard deviations of a layer's initial weights.
#ifndef HEADWISE_MODEL_INITIAL_STD_H_
#define HEADWISE_MODEL_INITIAL_STD_H_

#include <cmath>
#include <cstdint>

#include "core/proto/config.pb.h"

namespace headwise {

// Of wo, w2 and w3 in layer `layer` (from 0): linear_std / sqrt(2 (layer + 1)) if the config scales
// by depth, so that each block adds less to a residual stream that already carries more.
inline double ResidualStd(const InitConfig& init, std::int64_t layer) {
  if (!init.scale_residual_by_depth()) return init.linear_std();
  return init.linear_std() / std::sqrt(2.0 * static_cast<double>(layer + 1));
}

}  // namespace headwise

#endif  // HEADWISE_MODEL_INITIAL_STD_H_
