#include "kernels/attention/cuda.h"

#include "kernels/common/reductions.h"

namespace headwise {

std::int64_t AttentionBackwardScratch(const Attention& op, std::int64_t queries, bool sinks) {
  const std::int64_t deltas = queries * op.query_heads;
  if (!sinks) return deltas;
  const std::int64_t tiles = (queries + kTokenTile - 1) / kTokenTile;
  return deltas + queries +
         tiles * op.query_heads;  // and whether a row has a segment, and partials
}

}  // namespace headwise
