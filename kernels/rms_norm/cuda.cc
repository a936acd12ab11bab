#include "kernels/rms_norm/cuda.h"

#include "kernels/common/reductions.h"

namespace headwise {

std::int64_t RmsNormBackwardScratch(const RmsNorm& op, std::int64_t tokens, std::int64_t width) {
  const bool weighted = op.style != RmsNormStyle::kScaleless;
  const std::int64_t tiles = (tokens + kTokenTile - 1) / kTokenTile;
  return 2 * tokens + (weighted ? tiles * width : 0);
}

}  // namespace headwise
