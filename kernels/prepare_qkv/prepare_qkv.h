// prepare_qkv: from the packed QKV projection to attention's q, k and v, and back.
//
//   packed [T, slots, D] --split--> q, k, v --per-head RMS norm--> q, k --RoPE--> q, k
//
// One pass over memory each way. Forward reads `packed` once and writes q, k, v once. Backward reads dq, dk, dv and
// `packed`, and writes the packed gradient where an unfused backward would need a concatenation; nothing else is saved
// between the two, because the norm's reciprocal root is recomputed from `packed` with the same bits.
//
// What it is not: it does not project (a linear layer made `packed`), and it does not attend.
//
// Every implementation (reference, CPU, CUDA) returns the same bits: docs/numerics.md. A row's result depends on that row
// alone, never on T, the batch, the threads or the launch.
//
// Shape letters: T tokens, H query heads, G key/value heads, D head_dim, R rotary dims, slots = H + 2 G.
//
// Example (one layer):
//
//   const PackedQkv layout = *PackedQkv::Interleaved({.query_heads = 128, .kv_heads = 16, .head_dim = 64});
//   const QkvPreparation op = {.layout = layout, .norm = HeadNorm::kWeighted, .rotary = &table};
//   absl::Status s = PrepareQkv<BFloat16>(op, {packed, q_weight, k_weight, positions}, {q, k, v}, pool);
#ifndef HEADWISE_KERNELS_PREPARE_QKV_PREPARE_QKV_H_
#define HEADWISE_KERNELS_PREPARE_QKV_PREPARE_QKV_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/heads/packed_qkv.h"
#include "core/rope/rotary_table.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// Bumped whenever the order of operations, and so some output bit, changes.
inline constexpr int kPrepareQkvContractVersion = 1;

// How a q or k head is normalised before RoPE. x is the head's D values, r = 1 / sqrt(mean(x^2) + epsilon).
enum class HeadNorm {
  kNone,          // y = x; the query scale must be 1
  kScaleless,     // y = x r
  kWeighted,      // y = (x r) w
  kGainCentered,  // y = (x r) (1 + w); w starts at zero (Muse Glimmer, Gemma)
};

// Where intermediate values are rounded to the storage type. The default is what the unfused operations would store.
enum class Rounding {
  kAfterWeight,   // after the norm's weight (PyTorch's rms_norm)
  kBeforeWeight,  // before it and after it (Hugging Face Llama)
  kOnlyAtEnd,     // nowhere: most accurate
};

// One layer's choices. Plain data; copy freely.
struct QkvPreparation {
  PackedQkv layout;
  HeadNorm norm = HeadNorm::kNone;
  float epsilon = 1e-6f;
  float query_scale = 1.0f;              // multiplies normalised q only; 1 means no multiply at all
  const RotaryTable* rotary = nullptr;   // not owned; null: a NoPE layer
  Rounding rounding = Rounding::kAfterWeight;
};

// Storage T is float or BFloat16 (double for gradient tests: arithmetic is then in double and promises no bits).
// Weights are Compute<T>.
template <typename T>
struct QkvInputs {
  RowSpan<const T> packed;                       // [T, slots * D]; rows may be strided
  absl::Span<const Compute<T>> q_weight = {};    // [D]; required by kWeighted and kGainCentered, else empty
  absl::Span<const Compute<T>> k_weight = {};    // [D]; likewise
  absl::Span<const std::int64_t> positions = {}; // [T]; required with RoPE; 0 <= position < rotary->length()
};

// Must not overlap `packed`.
template <typename T>
struct QkvOutputs {
  RowSpan<T> q;  // [T, H * D]; rows may be strided
  RowSpan<T> k;  // [T, G * D]
  RowSpan<T> v;  // [T, G * D]; data == nullptr leaves v where it is in `packed` (attention reads it strided)
};

// Computes q, k and v. T = 0 is valid and does nothing. Errors: kInvalidArgument names the argument, what it was and what
// it must be; kOutOfRange names the token whose position has no table row. On an error nothing is written.
//
// Equivalent in PyTorch: rope(rms_norm(packed.view(T, G, H // G + 2, D)[:, :, :-2])), and so on for k and v.
template <typename T>
absl::Status PrepareQkv(const QkvPreparation& op, const QkvInputs<T>& in, const QkvOutputs<T>& out,
                        ThreadPool& pool);

template <typename T>
struct QkvGradients {
  RowSpan<const T> dq;  // [T, H * D]
  RowSpan<const T> dk;  // [T, G * D]
  RowSpan<const T> dv;  // [T, G * D]
};

// The packed gradient, and the norm weights' gradients per kv group (so that micro-batches and tensor-parallel ranks can be
// summed before the tree over groups): ReduceHeadNormGradient makes [D] of [G, D].
template <typename T>
struct PackedGradients {
  RowSpan<T> dpacked;                             // [T, slots * D]; must not overlap any input
  RowSpan<Compute<T>> dq_weight_per_group = {};   // [G, D], overwritten; required by kWeighted, kGainCentered, else empty
  RowSpan<Compute<T>> dk_weight_per_group = {};   // [G, D], likewise
};

// `in` is the forward's input. Errors as PrepareQkv's.
template <typename T>
absl::Status PrepareQkvBackward(const QkvPreparation& op, const QkvInputs<T>& in,
                                const QkvGradients<T>& gradients, const PackedGradients<T>& out,
                                ThreadPool& pool);

// out[d] = adjacent-pair tree over the kv groups of per_group[g][d].
template <typename C>
void ReduceHeadNormGradient(RowSpan<const C> per_group, absl::Span<C> out);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_PREPARE_QKV_H_
