// elementwise: the residual add, a bias, the sigmoid gate on attention's output, conversions between
// storage types, and rows that go to their places.
//
//   Add<float>(residual, branch, residual, pool);       // in place
//   Convert<float, BFloat16>(master, weights, pool);
//
// All matrices [T, N], row spans of any stride and alignment, not owned. Storage T is float,
// BFloat16 or double; the arithmetic is in fp32 (double for double), one rounding to storage. Every
// element's bits depend on that element alone. Where an output "may be" an input, data and stride
// are the same; otherwise they do not overlap. Shapes that do not agree fail an HW_CHECK.
#ifndef HEADWISE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
#define HEADWISE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// out = a + b; out may be a or b.
template <typename T>
void Add(RowSpan<const T> a, RowSpan<const T> b, RowSpan<T> out, ThreadPool& pool);

// out[t] = y[t] + bias; out may be y. bias [N].
template <typename T>
void AddBias(RowSpan<const T> y, absl::Span<const Compute<T>> bias, RowSpan<T> out,
             ThreadPool& pool);

// out = x * Sigmoid(gate); out may be x or gate. Sigmoid is the one of kernels/common/math.h.
template <typename T>
void SigmoidGateForward(RowSpan<const T> x, RowSpan<const T> gate, RowSpan<T> out,
                        ThreadPool& pool);

// With s = Sigmoid(gate) and t = Sigmoid(-gate), which is 1 - s without cancellation:
//
//   dx = dout * s
//   dgate = ((dout * x) * s) * t
//
// Each output may be any one of the inputs.
template <typename T>
void SigmoidGateBackward(RowSpan<const T> x, RowSpan<const T> gate, RowSpan<const T> dout,
                         RowSpan<T> dx, RowSpan<T> dgate, ThreadPool& pool);

// out = in in the other type: exact when widening, one rounding when narrowing. (From, To): (float,
// BFloat16), (BFloat16, float), (float, float).
template <typename From, typename To>
void Convert(RowSpan<const From> in, RowSpan<To> out, ThreadPool& pool);

// out[destinations[t]] = in[t], bit for bit, for every t whose destination [T] is a row of out; the
// other rows of in go nowhere, and those of out keep what they hold. Of the same width, which is all
// that the shapes must agree in; no two destinations that are rows of out may be the same.
template <typename T>
void ScatterRows(RowSpan<const T> in, absl::Span<const std::int64_t> destinations, RowSpan<T> out,
                 ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
