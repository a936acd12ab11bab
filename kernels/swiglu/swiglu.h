// swiglu: the gated activation of the feed-forward layer (arXiv:2002.05202), plain or clamped.
//
//   plain     out = silu(gate) * up,   silu(x) = x * sigmoid(x)
//   clamped   out = (g * sigmoid(alpha g)) * (u + 1),   g = min(gate, limit),
//                                                       u = clamp(up, -limit, limit)
//
//   SwigluForward<BFloat16>({}, gate, up, hidden, pool);                    // all [T, F]
//   SwigluForward<BFloat16>({.clamped = true}, gate, up, hidden, pool);     // GPT-OSS's
//
// T tokens, F width. Storage T is float, BFloat16 or double; the arithmetic is in fp32 (double for
// double). Row spans of any stride and alignment, not owned: gate and up may be the halves of one
// packed projection. Sigmoid is the one of kernels/common/math.h. The clamped form is that of
// GPT-OSS (GptOssExperts in transformers' modeling_gpt_oss.py).
//
// Order of operations, each rounded once, with one more rounding to storage; alpha and limit are
// rounded once to the type of the arithmetic:
//
//   plain      out = (gate * Sigmoid(gate)) * up
//              s = Sigmoid(gate), t = Sigmoid(-gate)           t is 1 - s, without cancellation
//              a = gate * s                                    silu(gate)
//              dgate = (dout * up) * fma(a, t, s)              d silu = s + a (1 - s)
//              dup = dout * a
//
//   clamped    out = (g * Sigmoid(g * alpha)) * (u + 1)        NaN passes the clamps
//              s = Sigmoid(g * alpha), t = Sigmoid(-(g * alpha)), a = g * s
//              dgate = (dout * (u + 1)) * fma(a * alpha, t, s) where gate <= limit, otherwise +0
//              dup = dout * a                                  where |up| <= limit, otherwise +0
//
// At the limit itself the gradient passes, as through torch.clamp. Elementwise: an element's bits
// depend on nothing else. gate = -infinity gives NaN (its product with Sigmoid = 0), as in the
// formula. Shapes that do not agree, and a limit that is not positive, fail an HW_CHECK.
#ifndef HEADWISE_KERNELS_SWIGLU_SWIGLU_H_
#define HEADWISE_KERNELS_SWIGLU_SWIGLU_H_

#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// Bumped whenever the order of operations, and so some output bit, changes.
inline constexpr int kSwigluContractVersion = 1;

struct Swiglu {
  bool clamped = false;
  double alpha = 1.702;  // clamped only, as is limit
  double limit = 7.0;
};

// gate, up (in), out (out) [T, F]; out may be gate or up itself.
template <typename T>
void SwigluForward(const Swiglu& op, RowSpan<const T> gate, RowSpan<const T> up, RowSpan<T> out,
                   ThreadPool& pool);

// gate, up, dout (in), dgate, dup (out) [T, F]. Each output may be any one of the inputs itself.
template <typename T>
void SwigluBackward(const Swiglu& op, RowSpan<const T> gate, RowSpan<const T> up,
                    RowSpan<const T> dout, RowSpan<T> dgate, RowSpan<T> dup, ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_SWIGLU_SWIGLU_H_
