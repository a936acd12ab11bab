#include "kernels/prepare_qkv/cuda.h"

namespace headwise {

std::int64_t WeightGradientScratch(const QkvPreparation& op, std::int64_t tokens) {
  if (!HasWeight(op.norm)) return 0;
  const std::int64_t tiles = (tokens + kWeightGradientTile - 1) / kWeightGradientTile;
  return tiles * 2 * op.layout.kv_heads() * op.layout.head_dim();
}

}  // namespace headwise
