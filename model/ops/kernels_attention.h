// Attention by the chosen implementation (model/ops/kernels.h). Arguments and formulas:
// kernels/attention/attention.h. The CUDA kernels take heads of up to kMostCudaHeadDim elements.
#ifndef HEADWISE_MODEL_OPS_KERNELS_ATTENTION_H_
#define HEADWISE_MODEL_OPS_KERNELS_ATTENTION_H_

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "core/tensor/tensor.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cuda.h"
#include "model/ops.h"
#include "model/ops/kernels.h"

namespace headwise::ops::kernels {

template <typename T>
void AttentionForward(const OpContext& ctx, const headwise::Attention& op,
                      absl::Span<const AttentionSegment> segments, RowSpan<const T> q,
                      RowSpan<const T> k, RowSpan<const T> v, absl::Span<const Compute<T>> sinks,
                      RowSpan<T> o, RowSpan<Compute<T>> log_sum_exp) {
  FirstBadIndex bad(ctx, Fault::kSegment);
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.AttentionForward(op, segments, q, k, v, sinks, o, log_sum_exp,
                                   {.stream = Stream(ctx), .first_bad_segment = bad.get()});
      },
      [&] {
        headwise::AttentionForward<T>(op, segments, q, k, v, sinks, o, log_sum_exp, *ctx.pool);
      });
  bad.Check();
}

// q, k and v (in) are the forward's; dq, dk and dv (out).
template <typename T>
void AttentionBackward(const OpContext& ctx, const headwise::Attention& op,
                       absl::Span<const AttentionSegment> segments, RowSpan<const T> q,
                       RowSpan<const T> k, RowSpan<const T> v, absl::Span<const Compute<T>> sinks,
                       RowSpan<const T> o, RowSpan<const Compute<T>> log_sum_exp,
                       RowSpan<const T> d_o, RowSpan<T> dq, RowSpan<T> dk, RowSpan<T> dv,
                       absl::Span<Compute<T>> d_sinks) {
  FirstBadIndex bad(ctx, Fault::kSegment);
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        const Tensor scratch = Scratch(ctx, AttentionBackwardScratch(op, q.rows, !sinks.empty()));
        return of.AttentionBackward(op, segments, q, k, v, sinks, o, log_sum_exp, d_o, dq, dk, dv,
                                    d_sinks,
                                    {.stream = Stream(ctx),
                                     .first_bad_segment = bad.get(),
                                     .scratch = scratch.data<float>()});
      },
      [&] {
        headwise::AttentionBackward<T>(op, segments, q, k, v, sinks, o, log_sum_exp, d_o, dq, dk,
                                       dv, d_sinks, *ctx.pool);
      });
  bad.Check();
}

}  // namespace headwise::ops::kernels

#endif  // HEADWISE_MODEL_OPS_KERNELS_ATTENTION_H_
