// Products of linear layers by the chosen implementation (model/ops/kernels.h). Arguments and
// formulas: kernels/gemm/gemm.h.
//
// On a GPU products are the Gpu's, whose sums are in fp32. A bias is added to them before they are
// rounded, as gemm.h has it: bf16 layers with a bias go through a matrix of fp32. The emulation has
// no products: there they are the CPU's.
#ifndef HEADWISE_MODEL_OPS_KERNELS_LINEAR_H_
#define HEADWISE_MODEL_OPS_KERNELS_LINEAR_H_

#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "core/tensor/tensor.h"
#include "kernels/gemm/cuda.h"
#include "kernels/gemm/gemm.h"
#include "model/ops.h"
#include "model/ops/kernels.h"
#include "model/ops/kernels_elementwise.h"

namespace headwise::ops::kernels {

// on_gpu(), which returns a product's status, on a GPU, else cpu().
template <typename T, typename OnGpu, typename Cpu>
void ChooseProduct(const OpContext& ctx, OnGpu on_gpu, Cpu cpu) {
  if constexpr (!std::is_same_v<T, double>) {
    if (ctx.gpu != nullptr) {
      return Launch(ctx, [&] { return on_gpu(StorageType<T>()); });
    }
  }
  cpu();
}

template <typename In, typename Out>
void LinearForward(const OpContext& ctx, RowSpan<const In> x, RowSpan<const In> w,
                   absl::Span<const Compute<In>> bias, RowSpan<Out> y) {
  ChooseProduct<In>(
      ctx,
      [&]<typename U>(StorageType<U>) -> absl::Status {
        if (bias.empty()) return ctx.gpu->LinearForward<U, Out>(x, w, y);
        if constexpr (std::is_same_v<Out, float>) {
          absl::Status status = ctx.gpu->LinearForward<U, float>(x, w, y);
          if (!status.ok()) return status;
          AddBias<float>(ctx, y, bias, y);
          return status;
        } else {
          const Tensor sums = ctx.Empty({y.rows, y.width}, DType::kF32);
          LinearForward<U, float>(ctx, x, w, bias, sums.Rows<float>());
          Convert<float, Out>(ctx, sums.Rows<float>(), y);
          return absl::OkStatus();
        }
      },
      [&] { headwise::LinearForward<In, Out>(ctx.gemm, x, w, bias, y, *ctx.pool); });
}

template <typename T>
void LinearBackwardInput(const OpContext& ctx, RowSpan<const T> dy, RowSpan<const T> w,
                         RowSpan<T> dx) {
  ChooseProduct<T>(
      ctx,
      [&]<typename U>(StorageType<U>) { return ctx.gpu->LinearBackwardInput<U, U>(dy, w, dx); },
      [&] { headwise::LinearBackwardInput<T, T>(ctx.gemm, dy, w, dx, *ctx.pool); });
}

template <typename T>
void LinearBackwardWeight(const OpContext& ctx, RowSpan<const T> dy, RowSpan<const T> x,
                          RowSpan<Compute<T>> dw) {
  ChooseProduct<T>(
      ctx, [&]<typename U>(StorageType<U>) { return ctx.gpu->LinearBackwardWeight<U>(dy, x, dw); },
      [&] { headwise::LinearBackwardWeight<T>(ctx.gemm, dy, x, dw, *ctx.pool); });
}

template <typename T>
void LinearBackwardBias(const OpContext& ctx, RowSpan<const T> dy, absl::Span<Compute<T>> dbias) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        const Tensor scratch = Scratch(ctx, LinearBackwardBiasScratch(dy.rows, dy.width));
        return of.LinearBackwardBias(dy, dbias, scratch.data<float>(), Stream(ctx));
      },
      [&] { headwise::LinearBackwardBias<T>(dy, dbias, *ctx.pool); });
}

}  // namespace headwise::ops::kernels

#endif  // HEADWISE_MODEL_OPS_KERNELS_LINEAR_H_
