#include "model/qkv_preparation.h"

#include "core/base/status_macros.h"
#include "kernels/prepare_qkv/cuda_unfused.h"
#include "model/config.h"

namespace headwise {
namespace {

HeadNorm Norm(HeadNormStyle style) {
  switch (style) {
    case HEAD_NORM_SCALELESS:
      return HeadNorm::kScaleless;
    case HEAD_NORM_WEIGHTED:
      return HeadNorm::kWeighted;
    case HEAD_NORM_GAIN_CENTERED:
      return HeadNorm::kGainCentered;
    default:
      return HeadNorm::kNone;
  }
}

Rounding RoundingOf(QkvRounding rounding) {
  switch (rounding) {
    case BEFORE_WEIGHT:
      return Rounding::kBeforeWeight;
    case ONLY_AT_END:
      return Rounding::kOnlyAtEnd;
    default:
      return Rounding::kAfterWeight;
  }
}

}  // namespace

QkvPreparation QkvPreparationOf(const ModelConfig& config, std::int64_t layer,
                                const RotaryTable* rotary) {
  const AttentionConfig& attention = config.attention();
  return {.layout = *QkvLayout(attention),
          .norm = Norm(attention.head_norm()),
          .epsilon = static_cast<float>(attention.head_norm_epsilon()),
          .query_scale = static_cast<float>(attention.query_scale()),
          .rotary = LayerUsesRope(config, layer) ? rotary : nullptr,
          .rounding = RoundingOf(attention.rounding())};
}

absl::Status CheckUnfusedQkvOnCuda(const ModelConfig& config) {
  const RopeConfig& rope = config.attention().rope();
  // Of no positions: what matters is how it pairs, and what.
  HW_ASSIGN_OR_RETURN(
      const RotaryTable table,
      RotaryTable::Create({.rotary_dim = rope.rotary_dim(),
                           .theta = rope.theta(),
                           .pairing = rope.pairing() == INTERLEAVED ? RotaryPairing::kInterleaved
                                                                    : RotaryPairing::kHalf}));
  for (std::int64_t l = 0; l < config.num_layers(); ++l) {
    HW_RETURN_IF_ERROR(CheckUnfused(QkvPreparationOf(config, l, &table)));
  }
  return absl::OkStatus();
}

}  // namespace headwise
