// A packed QKV projection with per-head norm and RoPE: what a program with its own model builds
// from Headwise's kernels. Its weight learns to give the same q, k and v as another, given weight.
#ifndef HEADWISE_TESTS_EXTERNAL_QKV_LAYER_H_
#define HEADWISE_TESTS_EXTERNAL_QKV_LAYER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/heads/packed_qkv.h"
#include "core/rope/rotary_table.h"
#include "kernels/common/thread_pool.h"
#include "kernels/prepare_qkv/prepare_qkv.h"

namespace headwise_example {

// What attention would take; row-major [tokens, heads * head_dim].
struct QkvActivations {
  std::vector<float> packed, q, k, v;
};

class QkvLayer {
 public:
  // 4 query heads and 2 kv heads of 16 elements, model width 64, 32 tokens of fixed random input.
  static absl::StatusOr<QkvLayer> Create();

  const headwise::PackedQkv& layout() const { return layout_; }
  std::int64_t width() const { return kWidth; }
  std::int64_t tokens() const { return kTokens; }
  // The layer's choices, which refer to *this.
  headwise::QkvPreparation Op() const;
  const std::vector<std::int64_t>& positions() const { return positions_; }
  // A weight [row_width, width] of the given seed.
  std::vector<float> RandomWeight(int seed) const;

  // weight: [row_width, width].
  absl::StatusOr<QkvActivations> Forward(const std::vector<float>& weight,
                                         headwise::ThreadPool& pool) const;

  // The mean squared distance of q, k and v from the target's, and its gradient to the weight
  // [row_width, width], overwritten.
  absl::StatusOr<double> LossAndGradient(const std::vector<float>& weight,
                                         const QkvActivations& target, std::vector<float>& gradient,
                                         headwise::ThreadPool& pool) const;

 private:
  static constexpr std::int64_t kTokens = 32;
  static constexpr std::int64_t kWidth = 64;

  QkvLayer(headwise::PackedQkv layout, headwise::RotaryTable rotary);

  headwise::PackedQkv layout_;
  headwise::RotaryTable rotary_;
  std::vector<std::int64_t> positions_;
  std::vector<float> input_;  // [tokens, width]
};

}  // namespace headwise_example

#endif  // HEADWISE_TESTS_EXTERNAL_QKV_LAYER_H_
