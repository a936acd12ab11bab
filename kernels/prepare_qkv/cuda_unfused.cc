#include "kernels/prepare_qkv/cuda_unfused.h"

#include "absl/strings/str_cat.h"

namespace headwise {

absl::Status CheckUnfused(const QkvPreparation& op) {
  const auto refuse = [](const auto&... what) {
    return absl::UnimplementedError(absl::StrCat("the unfused CUDA kernels take ", what...));
  };
  const std::int64_t dim = op.layout.head_dim();
  if (dim != 64 && dim != 128) return refuse("heads of 64 or 128 elements, found ", dim);
  if (op.norm == HeadNorm::kNone) return refuse("normalised heads only");
  if (op.rounding != Rounding::kAfterWeight) return refuse("Rounding::kAfterWeight only");
  if (op.rotary == nullptr) return absl::OkStatus();
  if (op.rotary->pairing() != RotaryPairing::kHalf) {
    return refuse("RoPE by halves, found ", Name(op.rotary->pairing()));
  }
  if (op.rotary->rotary_dim() != dim) {
    return refuse("RoPE over the whole head of ", dim, ", found ", op.rotary->rotary_dim());
  }
  return absl::OkStatus();
}

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
