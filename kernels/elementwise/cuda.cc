#include "kernels/elementwise/cuda.h"

#include "kernels/common/reductions.h"

namespace headwise {

std::int64_t ResidualGateBackwardScratch(std::int64_t tokens, std::int64_t width) {
  const std::int64_t tiles = (tokens + kTokenTile - 1) / kTokenTile;
  return (tiles + 1) * 2 * width;
}

}  // namespace headwise
