// Elementwise kernels, the residual gate and SwiGLU by the chosen implementation
// (model/ops/kernels.h). Arguments and formulas: kernels/elementwise/elementwise.h and
// residual_gate.h, kernels/swiglu/swiglu.h.
#ifndef HEADWISE_MODEL_OPS_KERNELS_ELEMENTWISE_H_
#define HEADWISE_MODEL_OPS_KERNELS_ELEMENTWISE_H_

#include <type_traits>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "core/tensor/tensor.h"
#include "kernels/elementwise/cuda.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/residual_gate.h"
#include "kernels/swiglu/cuda.h"
#include "kernels/swiglu/swiglu.h"
#include "model/ops.h"
#include "model/ops/kernels.h"

namespace headwise::ops::kernels {

template <typename T>
void Add(const OpContext& ctx, RowSpan<const T> a, RowSpan<const T> b, RowSpan<T> out) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) { return of.Add(a, b, out, Stream(ctx)); },
      [&] { headwise::Add<T>(a, b, out, *ctx.pool); });
}

template <typename T>
void AddBias(const OpContext& ctx, RowSpan<const T> y, absl::Span<const Compute<T>> bias,
             RowSpan<T> out) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.AddBias(y, bias, out, Stream(ctx));
      },
      [&] { headwise::AddBias<T>(y, bias, out, *ctx.pool); });
}

template <typename T>
void ScatterRows(const OpContext& ctx, RowSpan<const T> in,
                 absl::Span<const std::int64_t> destinations, RowSpan<T> out) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.ScatterRows(in, destinations, out, Stream(ctx));
      },
      [&] { headwise::ScatterRows<T>(in, destinations, out, *ctx.pool); });
}

template <typename From, typename To>
void Convert(const OpContext& ctx, RowSpan<const From> in, RowSpan<To> out) {
  static_assert(std::is_same_v<From, float> || std::is_same_v<To, float>);
  Choose<From>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>&) {
        if constexpr (std::is_same_v<U, float>) {
          return ctx.launchers->ConvertToBFloat16(in, out, Stream(ctx));
        } else {
          return ctx.launchers->ConvertFromBFloat16(in, out, Stream(ctx));
        }
      },
      [&] { headwise::Convert<From, To>(in, out, *ctx.pool); });
}

template <typename T>
void SigmoidGateForward(const OpContext& ctx, RowSpan<const T> x, RowSpan<const T> gate,
                        RowSpan<T> out) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.SigmoidGateForward(x, gate, out, Stream(ctx));
      },
      [&] { headwise::SigmoidGateForward<T>(x, gate, out, *ctx.pool); });
}

template <typename T>
void SigmoidGateBackward(const OpContext& ctx, RowSpan<const T> x, RowSpan<const T> gate,
                         RowSpan<const T> dout, RowSpan<T> dx, RowSpan<T> dgate) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.SigmoidGateBackward(x, gate, dout, dx, dgate, Stream(ctx));
      },
      [&] { headwise::SigmoidGateBackward<T>(x, gate, dout, dx, dgate, *ctx.pool); });
}

template <typename T>
void ResidualGateForward(const OpContext& ctx, const ResidualGate& op, RowSpan<const T> residual,
                         RowSpan<const T> branch, absl::Span<const Compute<T>> gate,
                         RowSpan<T> out) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.ResidualGateForward(op, residual, branch, gate, out, Stream(ctx));
      },
      [&] { headwise::ResidualGateForward<T>(op, residual, branch, gate, out, *ctx.pool); });
}

template <typename T>
void ResidualGateBackward(const OpContext& ctx, const ResidualGate& op, RowSpan<const T> residual,
                          RowSpan<const T> branch, absl::Span<const Compute<T>> gate,
                          RowSpan<const T> dout, RowSpan<T> dresidual, RowSpan<T> dbranch,
                          absl::Span<Compute<T>> dgate) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        const Tensor scratch =
            Scratch(ctx, ResidualGateBackwardScratch(residual.rows, residual.width));
        return of.ResidualGateBackward(op, residual, branch, gate, dout, dresidual, dbranch, dgate,
                                       scratch.data<float>(), Stream(ctx));
      },
      [&] {
        headwise::ResidualGateBackward<T>(op, residual, branch, gate, dout, dresidual, dbranch,
                                          dgate, *ctx.pool);
      });
}

template <typename T>
void SwigluForward(const OpContext& ctx, const headwise::Swiglu& op, RowSpan<const T> gate,
                   RowSpan<const T> up, RowSpan<T> out) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.SwigluForward(op, gate, up, out, Stream(ctx));
      },
      [&] { headwise::SwigluForward<T>(op, gate, up, out, *ctx.pool); });
}

template <typename T>
void SwigluBackward(const OpContext& ctx, const headwise::Swiglu& op, RowSpan<const T> gate,
                    RowSpan<const T> up, RowSpan<const T> dout, RowSpan<T> dgate, RowSpan<T> dup) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.SwigluBackward(op, gate, up, dout, dgate, dup, Stream(ctx));
      },
      [&] { headwise::SwigluBackward<T>(op, gate, up, dout, dgate, dup, *ctx.pool); });
}

}  // namespace headwise::ops::kernels

#endif  // HEADWISE_MODEL_OPS_KERNELS_ELEMENTWISE_H_
