// swiglu: the gated activation of the feed-forward layer (arXiv:2002.05202).
//
//   out = silu(gate) * up,   silu(x) = x * sigmoid(x)
#ifndef HEADWISE_KERNELS_SWIGLU_SWIGLU_H_
#define HEADWISE_KERNELS_SWIGLU_SWIGLU_H_

#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// gate, up, out [T, F]; one rounding, to out. T is float, BFloat16 or double.
template <typename T>
void SwigluForward(RowSpan<const T> gate, RowSpan<const T> up, RowSpan<T> out, ThreadPool& pool);

// dgate and dup may be gate and up themselves.
template <typename T>
void SwigluBackward(RowSpan<const T> gate, RowSpan<const T> up, RowSpan<const T> dout,
                    RowSpan<T> dgate, RowSpan<T> dup, ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_SWIGLU_SWIGLU_H_
