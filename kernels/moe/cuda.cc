#include "kernels/moe/cuda.h"

#include "kernels/common/reductions.h"
#include "kernels/moe/cuda/tiles.h"

namespace headwise {

std::int64_t GroupByExpertScratch(std::int64_t choices, std::int64_t experts) {
  return (choices + moe::kChoicesOfTile - 1) / moe::kChoicesOfTile * experts;
}

std::int64_t LoadBalancingLossScratch(std::int64_t tokens, std::int64_t experts) {
  const std::int64_t tiles = (tokens + kTokenTile - 1) / kTokenTile;
  return (tiles + 1) * experts;  // of each tile, and in all
}

}  // namespace headwise
