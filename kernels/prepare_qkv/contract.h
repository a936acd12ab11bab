// The contract of prepare_qkv: its choices, its arguments, and the order of its operations. Every
// implementation (reference, CPU, CUDA) takes these and returns the same bits; prepare_qkv.h
// is what callers include.
//
// Forward, for each token and each q or k head, in Compute<T> (docs/numerics.md, sections 1-3):
//
//   x   = packed head, widened                      S = sum x^2: chunks of 8, serial fma; halving tree
//   r   = correctly rounded 1 / sqrt(S/D + epsilon)
//   n   = x r
//   y   = n w'        w' = w, 1 + w, or no multiply; rounded to T where Rounding says
//   y   = y s         q only, and only if the query scale s is not 1; rounded likewise
//   out = (y1 c - y2 s, y2 c + y1 s) for each rotary pair, no fma; rounded to T once
//
// v heads are a bit copy. Backward (section 4) keeps nothing of it but `packed`:
//
//   g   = (d1 c + d2 s, d2 c - d1 s); g = g s; h = g w'; xh = x r; c1 = S(h, xh) / D
//   dx  = r fma(-xh, c1, h), rounded to T once, straight into the packed gradient
//
// Weight gradients (section 4) are sums of g xh over tokens: serial in tiles of 64 tokens, then
// adjacent-pair trees over the heads of a kv group, over tiles, and last over kv groups.
//
// NaN in, NaN out, in the same elements; which NaN is not specified. A head of zeros with
// epsilon = 0 is NaN.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CONTRACT_H_
#define HEADWISE_KERNELS_PREPARE_QKV_CONTRACT_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/heads/packed_qkv.h"
#include "core/rope/rotary_table.h"
#include "core/tensor/row_span.h"

namespace headwise {

// Bumped whenever the order of operations, and so some output bit, changes.
inline constexpr int kPrepareQkvContractVersion = 1;

// D is even and at most this.
inline constexpr std::int64_t kMaxHeadDim = 512;

// Tokens summed serially in a norm weight's gradient. A constant of the contract, never tuned.
inline constexpr std::int64_t kWeightGradientTile = 64;

// How a q or k head is normalised before RoPE. x is the head's D values,
// r = 1 / sqrt(mean(x^2) + epsilon).
enum class HeadNorm {
  kNone,          // y = x; the query scale must be 1
  kScaleless,     // y = x r
  kWeighted,      // y = (x r) w
  kGainCentered,  // y = (x r) (1 + w); w starts at zero (Muse Glimmer, Gemma)
};

// Where intermediate values are rounded to the storage type. The default is what the unfused
// operations would store. In fp32 storage the three are the same.
enum class Rounding {
  kAfterWeight,   // after the norm's weight (PyTorch's rms_norm)
  kBeforeWeight,  // before it and after it (Hugging Face Llama)
  kOnlyAtEnd,     // nowhere: most accurate
};

// Whether the norm has a weight: w is then required and has a gradient.
constexpr bool HasWeight(HeadNorm norm) {
  return norm == HeadNorm::kWeighted || norm == HeadNorm::kGainCentered;
}

// One layer's choices. Plain data; copy freely.
struct QkvPreparation {
  PackedQkv layout;
  HeadNorm norm = HeadNorm::kNone;
  float epsilon = 1e-6f;                // finite, >= 0
  float query_scale = 1.0f;             // multiplies normalised q only; 1 means no multiply at all
  const RotaryTable* rotary = nullptr;  // not owned; null: a NoPE layer
  Rounding rounding = Rounding::kAfterWeight;
};

// Storage T is float or BFloat16 (double for gradient tests: arithmetic is then in double, and no
// bits are promised). The caller owns all memory; pointers need only their element's alignment.
template <typename T>
struct QkvInputs {
  RowSpan<const T> packed;                     // [T, slots * D]; rows may be strided
  absl::Span<const Compute<T>> q_weight = {};  // [D]; for kWeighted and kGainCentered, else empty
  absl::Span<const Compute<T>> k_weight = {};  // [D]; likewise
  // [T]; 0 <= position < rotary->length(). Required with RoPE; a NoPE layer does not look at them.
  absl::Span<const std::int64_t> positions = {};
};

// Must not overlap the inputs or each other; columns of one buffer (strided rows) do not overlap.
template <typename T>
struct QkvOutputs {
  RowSpan<T> q;  // [T, H * D]; rows may be strided
  RowSpan<T> k;  // [T, G * D]
  RowSpan<T> v;  // [T, G * D]; data == nullptr leaves v in `packed` (attention reads it strided)
};

template <typename T>
struct QkvGradients {
  RowSpan<const T> dq;  // [T, H * D]; rows may be strided
  RowSpan<const T> dk;  // [T, G * D]
  RowSpan<const T> dv;  // [T, G * D]
};

// The packed gradient, and the norm weights' gradients per kv group, so that micro-batches and
// tensor-parallel ranks can be summed before the tree over groups: ReduceHeadNormGradient makes [D]
// of [G, D]. Must not overlap the inputs, the gradients or each other.
template <typename T>
struct PackedGradients {
  RowSpan<T> dpacked;  // [T, slots * D]; rows may be strided
  // [G, D], overwritten; required by kWeighted and kGainCentered, else empty. T = 0 gives +0.
  RowSpan<Compute<T>> dq_weight_per_group = {};
  RowSpan<Compute<T>> dk_weight_per_group = {};
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CONTRACT_H_
