// The specification of attention.h: the same order of operations as plain loops, one element at a
// time. Slow. Fast paths must return its bits.
#ifndef HEADWISE_KERNELS_ATTENTION_REFERENCE_H_
#define HEADWISE_KERNELS_ATTENTION_REFERENCE_H_

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/attention/attention.h"

namespace headwise {

// As AttentionForward.
template <typename T>
void AttentionForwardReference(const Attention& op, absl::Span<const AttentionSegment> segments,
                               RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v,
                               absl::Span<const Compute<T>> sinks, RowSpan<T> o,
                               RowSpan<Compute<T>> log_sum_exp);

// As AttentionBackward.
template <typename T>
void AttentionBackwardReference(const Attention& op, absl::Span<const AttentionSegment> segments,
                                RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v,
                                absl::Span<const Compute<T>> sinks, RowSpan<const T> o,
                                RowSpan<const Compute<T>> log_sum_exp, RowSpan<const T> d_o,
                                RowSpan<T> dq, RowSpan<T> dk, RowSpan<T> dv,
                                absl::Span<Compute<T>> d_sinks);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_ATTENTION_REFERENCE_H_
