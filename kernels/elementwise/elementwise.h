// elementwise: the residual add, the sigmoid gate on attention's output, and conversions between storage types.
#ifndef HEADWISE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
#define HEADWISE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_

#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// out = a + b, one rounding; all [T, N]; out may be a or b itself.
template <typename T>
void Add(RowSpan<const T> a, RowSpan<const T> b, RowSpan<T> out, ThreadPool& pool);

// out = x * sigmoid(gate); all [T, N]; out may be x itself.
template <typename T>
void SigmoidGateForward(RowSpan<const T> x, RowSpan<const T> gate, RowSpan<T> out, ThreadPool& pool);

// dx = dout * sigmoid(gate), dgate = dout * x * sigmoid(gate) (1 - sigmoid(gate)); dx may be dout itself, dgate may be gate.
template <typename T>
void SigmoidGateBackward(RowSpan<const T> x, RowSpan<const T> gate, RowSpan<const T> dout,
                         RowSpan<T> dx, RowSpan<T> dgate, ThreadPool& pool);

// out = in in the other type: exact when widening, one rounding when narrowing. (From, To): (float, BFloat16),
// (BFloat16, float), (float, float).
template <typename From, typename To>
void Convert(RowSpan<const From> in, RowSpan<To> out, ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
