// What the two CPU kernels share: which heads a call works on, and where they lie.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CPU_HEADS_H_
#define HEADWISE_KERNELS_PREPARE_QKV_CPU_HEADS_H_

#include <cstdint>
#include <vector>

#include "kernels/prepare_qkv/contract.h"

namespace headwise::internal {

// The q heads of a layer, or its k heads: they share a weight and a scale.
struct HeadList {
  struct Place {
    std::int64_t packed;    // element offset in a row of `packed`
    std::int64_t separate;  // element offset in a row of q or k
  };
  std::vector<Place> heads;
  std::vector<float>
      factor;  // [D], what the norm multiplies with: w or 1 + w; empty without weight
  float scale = 1.0f;

  std::int64_t size() const { return static_cast<std::int64_t>(heads.size()); }
};

inline std::vector<float> NormFactor(HeadNorm norm, absl::Span<const float> weight) {
  std::vector<float> factor(weight.begin(), weight.end());
  if (norm == HeadNorm::kGainCentered) {
    for (float& w : factor) w = 1.0f + w;
  }
  return factor;
}

template <typename T>
HeadList QueryHeads(const QkvPreparation& op, const QkvInputs<T>& in) {
  HeadList list{.heads = {}, .factor = NormFactor(op.norm, in.q_weight), .scale = op.query_scale};
  const std::int64_t dim = op.layout.head_dim();
  for (std::int64_t h = 0; h < op.layout.query_heads(); ++h) {
    list.heads.push_back({op.layout.QuerySlot(h) * dim, h * dim});
  }
  return list;
}

template <typename T>
HeadList KeyHeads(const QkvPreparation& op, const QkvInputs<T>& in) {
  HeadList list{.heads = {}, .factor = NormFactor(op.norm, in.k_weight)};
  const std::int64_t dim = op.layout.head_dim();
  for (std::int64_t g = 0; g < op.layout.kv_heads(); ++g) {
    list.heads.push_back({op.layout.KeySlot(g) * dim, g * dim});
  }
  return list;
}

}  // namespace headwise::internal

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CPU_HEADS_H_
