// swiglu: the gated activation of the feed-forward layer (arXiv:2002.05202).
//
//   out = silu(gate) * up,   silu(x) = x * sigmoid(x)
//
//   SwigluForward<BFloat16>(gate, up, hidden, pool);    // all [T, F]
//
// T tokens, F width. Storage T is float, BFloat16 or double; the arithmetic is in fp32 (double for
// double). Row spans of any stride and alignment, not owned: gate and up may be the halves of one
// packed projection. Sigmoid is the one of kernels/common/math.h.
//
// Order of operations, each rounded once, with one more rounding to storage:
//
//   forward    out = (gate * Sigmoid(gate)) * up
//   backward   s = Sigmoid(gate), t = Sigmoid(-gate)           t is 1 - s, without cancellation
//              a = gate * s                                    silu(gate)
//              dgate = (dout * up) * fma(a, t, s)              d silu = s + a (1 - s)
//              dup = dout * a
//
// Elementwise: an element's bits depend on nothing else. gate = -infinity gives NaN (its product
// with Sigmoid = 0), as in the formula. Shapes that do not agree fail an HW_CHECK.
#ifndef HEADWISE_KERNELS_SWIGLU_SWIGLU_H_
#define HEADWISE_KERNELS_SWIGLU_SWIGLU_H_

#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// Bumped whenever the order of operations, and so some output bit, changes.
inline constexpr int kSwigluContractVersion = 1;

// gate, up (in), out (out) [T, F]; out may be gate or up itself.
template <typename T>
void SwigluForward(RowSpan<const T> gate, RowSpan<const T> up, RowSpan<T> out, ThreadPool& pool);

// gate, up, dout (in), dgate, dup (out) [T, F]. Each output may be any one of the inputs itself.
template <typename T>
void SwigluBackward(RowSpan<const T> gate, RowSpan<const T> up, RowSpan<const T> dout,
                    RowSpan<T> dgate, RowSpan<T> dup, ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_SWIGLU_SWIGLU_H_
