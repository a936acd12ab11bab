// RMS norm by the chosen implementation (model/ops/kernels.h). Arguments, formulas and orders of
// operations: kernels/rms_norm/rms_norm.h.
#ifndef HEADWISE_MODEL_OPS_KERNELS_NORM_H_
#define HEADWISE_MODEL_OPS_KERNELS_NORM_H_

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "core/tensor/tensor.h"
#include "kernels/rms_norm/cuda.h"
#include "kernels/rms_norm/rms_norm.h"
#include "model/ops.h"
#include "model/ops/kernels.h"

namespace headwise::ops::kernels {

template <typename T>
void RmsNormForward(const OpContext& ctx, const headwise::RmsNorm& op, RowSpan<const T> x,
                    absl::Span<const Compute<T>> weight, RowSpan<T> y) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.RmsNormForward(op, x, weight, y, Stream(ctx));
      },
      [&] { headwise::RmsNormForward<T>(op, x, weight, y, *ctx.pool); });
}

template <typename T>
void RmsNormBackward(const OpContext& ctx, const headwise::RmsNorm& op, RowSpan<const T> x,
                     absl::Span<const Compute<T>> weight, RowSpan<const T> dy, RowSpan<T> dx,
                     absl::Span<Compute<T>> dweight) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        const Tensor scratch = Scratch(ctx, RmsNormBackwardScratch(op, x.rows, x.width));
        return of.RmsNormBackward(op, x, weight, dy, dx, dweight, scratch.data<float>(),
                                  Stream(ctx));
      },
      [&] { headwise::RmsNormBackward<T>(op, x, weight, dy, dx, dweight, *ctx.pool); });
}

}  // namespace headwise::ops::kernels

#endif  // HEADWISE_MODEL_OPS_KERNELS_NORM_H_
