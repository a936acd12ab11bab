// prepare_qkv: from the packed QKV projection to attention's q, k and v, and back.
//
//   packed [T, slots, D] --split--> q, k, v --per-head RMS norm--> q, k --RoPE--> q, k
//
// One pass over memory each way. Forward reads `packed` once and writes q, k, v once. Backward
// reads dq, dk, dv and `packed`, and writes the packed gradient where an unfused backward would
// need a concatenation; nothing else is saved between the two, because the norm's reciprocal root
// is recomputed from `packed` with the same bits.
//
// What it is not: it does not project (a linear layer made `packed`), and it does not attend.
//
// Arguments and the order of operations are in contract.h. Every implementation returns the same
// bits (docs/numerics.md). A row's result depends on that row alone, never on T, the batch, the
// threads or the launch.
//
// Shape letters: T tokens, H query heads, G key/value heads, D head_dim (even, 2 to 512), R rotary
// dims, slots = H + 2 G.
//
// Example (one layer):
//
//   const QkvPreparation op = {
//       .layout = *PackedQkv::Interleaved({.query_heads = 128, .kv_heads = 16, .head_dim = 64}),
//       .norm = HeadNorm::kWeighted,
//       .rotary = &table};
//   HW_RETURN_IF_ERROR(PrepareQkv<BFloat16>(op, {packed, q_weight, k_weight, positions},
//                                           {q, k, v}, pool));
#ifndef HEADWISE_KERNELS_PREPARE_QKV_PREPARE_QKV_H_
#define HEADWISE_KERNELS_PREPARE_QKV_PREPARE_QKV_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"
#include "kernels/prepare_qkv/contract.h"  // IWYU pragma: export

namespace headwise {

// Computes q, k and v. T = 0 is valid and does nothing. T is float, BFloat16 or double.
//
// Errors: kInvalidArgument names the argument, what it was and what it must be; kOutOfRange names
// the token whose position has no table row; kFailedPrecondition if this thread flushes subnormals
// or does not round to nearest. On an error nothing is written.
//
// Equivalent in PyTorch: rope(rms_norm(packed.view(T, G, H // G + 2, D)[:, :, :-2])), and so on for
// k and v.
template <typename T>
absl::Status PrepareQkv(const QkvPreparation& op, const QkvInputs<T>& in, const QkvOutputs<T>& out,
                        ThreadPool& pool);

// Computes the packed gradient and, with weights, their gradients per kv group. `in` is the
// forward's input. Errors as PrepareQkv's. Uses at most 1024 * 2 G D values of scratch besides one
// tile's.
template <typename T>
absl::Status PrepareQkvBackward(const QkvPreparation& op, const QkvInputs<T>& in,
                                const QkvGradients<T>& gradients, const PackedGradients<T>& out,
                                ThreadPool& pool);

// out[d] = adjacent-pair tree over the kv groups g of per_group[g][d], padded with +0 to a power of
// two. per_group [G, D], out [D]; G = 0 gives +0. C is float or double.
template <typename C>
void ReduceHeadNormGradient(RowSpan<const C> per_group, absl::Span<C> out);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_PREPARE_QKV_H_
