// prepare_qkv as the separate operations it fuses: split, head norm, RoPE, and the concatenation of
// the packed gradient. What a program without the fused kernel runs, and the second opinion that
// the fused one is tested against: their composition returns its bits, forward and backward, and
// the two share no arithmetic.
//
// Between the operations stand intermediate tensors of type I. That type is the rounding mode:
//
//   I = T            kAfterWeight and kBeforeWeight: every operation rounds its result to storage
//   I = Compute<T>   kOnlyAtEnd: intermediate values stay in fp32, the last operation rounds
//
// Shapes: T tokens, H heads (of q, or of k), D head_dim, all in rows [T, H * D], strided at will.
// Nothing is checked but what would write out of bounds; arguments are the fused kernel's.
//
//   SplitQkv(layout, packed, QkvOutputs<BFloat16>{q, k, v}, pool);
//   HeadNormForward<BFloat16, BFloat16>({HeadNorm::kWeighted, eps}, dim, q, q_weight, qn, pool);
//   RopeForward<BFloat16, BFloat16>(&table, positions, dim, qn, q_out, pool);
#ifndef HEADWISE_KERNELS_PREPARE_QKV_UNFUSED_H_
#define HEADWISE_KERNELS_PREPARE_QKV_UNFUSED_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/common/thread_pool.h"
#include "kernels/prepare_qkv/contract.h"

namespace headwise {

// Copies each head to its place in q, k or v. out.v.data may be null: v then stays.
template <typename T>
void SplitQkv(const PackedQkv& layout, RowSpan<const T> packed, const QkvOutputs<T>& out,
              ThreadPool& pool);

// The inverse: copies dq, dk, dv into dpacked.
template <typename T>
void ConcatQkvGradient(const PackedQkv& layout, const QkvGradients<T>& gradients,
                       RowSpan<T> dpacked, ThreadPool& pool);

// The norm of every head of a tensor.
struct HeadNormOptions {
  HeadNorm norm = HeadNorm::kWeighted;  // not kNone
  float epsilon = 1e-6f;
  float scale = 1.0f;  // multiplies the result, rounded once more; 1 means no multiply at all
  Rounding rounding = Rounding::kAfterWeight;  // kOnlyAtEnd if and only if I is wider than T
};

// y = norm(x). x [T, H * D], weight [D] or empty, y [T, H * D].
template <typename T, typename I>
void HeadNormForward(const HeadNormOptions& op, std::int64_t head_dim, RowSpan<const T> x,
                     absl::Span<const Compute<T>> weight, RowSpan<I> y, ThreadPool& pool);

// dx from g = dy. If the norm has a weight, dweight_per_group [G, D] is overwritten with its
// gradient, summed over tokens and the H/G heads of each group.
template <typename T, typename I>
void HeadNormBackward(const HeadNormOptions& op, std::int64_t head_dim, RowSpan<const T> x,
                      absl::Span<const Compute<T>> weight, RowSpan<const I> g, RowSpan<T> dx,
                      RowSpan<Compute<T>> dweight_per_group, ThreadPool& pool);

// out = RoPE(y) rounded to T. Without a table (null): y rounded to T.
template <typename T, typename I>
void RopeForward(const RotaryTable* table, absl::Span<const std::int64_t> positions,
                 std::int64_t head_dim, RowSpan<const I> y, RowSpan<T> out, ThreadPool& pool);

// g = the transposed rotation of d, rounded to I.
template <typename T, typename I>
void RopeBackward(const RotaryTable* table, absl::Span<const std::int64_t> positions,
                  std::int64_t head_dim, RowSpan<const T> d, RowSpan<I> g, ThreadPool& pool);

// The compositions, with intermediate tensors allocated inside. Arguments as PrepareQkv's and
// PrepareQkvBackward's, which must be valid.
template <typename T>
void PrepareQkvUnfused(const QkvPreparation& op, const QkvInputs<T>& in, const QkvOutputs<T>& out,
                       ThreadPool& pool);
template <typename T>
void PrepareQkvBackwardUnfused(const QkvPreparation& op, const QkvInputs<T>& in,
                               const QkvGradients<T>& gradients, const PackedGradients<T>& out,
                               ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_UNFUSED_H_
