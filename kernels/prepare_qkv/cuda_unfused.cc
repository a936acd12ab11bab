#include "kernels/prepare_qkv/cuda_unfused.h"

namespace headwise {

std::int64_t UnfusedElements(const QkvPreparation& op, std::int64_t tokens) {
  return 3 * tokens * (op.layout.query_heads() + op.layout.kv_heads()) * op.layout.head_dim();
}

std::int64_t UnfusedPartials(const QkvPreparation& op, std::int64_t tokens) {
  if (!HasWeight(op.norm)) return 0;
  const std::int64_t tiles = (tokens + kWeightGradientTile - 1) / kWeightGradientTile;
  // q's heads, k's heads, q's groups.
  return tiles * (op.layout.query_heads() + 2 * op.layout.kv_heads()) * op.layout.head_dim();
}

}  // namespace headwise
