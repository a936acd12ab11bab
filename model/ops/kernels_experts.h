// Routers, dispatch and combination of rows, experts' linear layers and balancing by the chosen
// implementation (model/ops/kernels.h). Arguments, formulas and orders of operations:
// kernels/moe/*.h.
//
// CUDA kernels read where rows go from device memory on a GPU, and under the emulation from the
// host's vectors. Their products are the contract's: on a GPU always, under the emulation where
// ctx.gemm is kContract.
#ifndef HEADWISE_MODEL_OPS_KERNELS_EXPERTS_H_
#define HEADWISE_MODEL_OPS_KERNELS_EXPERTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "core/tensor/tensor.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/balancing.h"
#include "kernels/moe/cuda.h"
#include "kernels/moe/grouped_linear.h"
#include "kernels/moe/grouping.h"
#include "kernels/moe/router.h"
#include "model/ops.h"
#include "model/ops/kernels.h"

namespace headwise::ops::kernels {

// The launchers that are of no storage type; U makes what a launch is given depend on it, so that
// it is looked at only where there are launchers.
template <typename U>
const KernelLaunchers& Others(const OpContext& ctx) {
  return *ctx.launchers;
}

// [E + 1] and [T k], where CUDA kernels read them.
inline absl::Span<const std::int64_t> OffsetsOf(const ExpertRows& rows) {
  if (rows.offsets_on_gpu.defined()) return Elements<const std::int64_t>(rows.offsets_on_gpu);
  return rows.offsets;
}
inline absl::Span<const std::int64_t> RowOf(const Routing& routing) {
  if (routing.row_of_on_gpu.defined()) return Elements<const std::int64_t>(routing.row_of_on_gpu);
  return routing.groups.row_of;
}

// experts and weights (out) of the routing.
template <typename T>
void RouterForward(const OpContext& ctx, const Router& op, RowSpan<const Compute<T>> logits,
                   absl::Span<const Compute<T>> selection_bias, const Routing& routing) {
  using C = Compute<T>;
  const auto experts = routing.experts.Rows<std::int32_t>();
  const auto weights = routing.weights.Rows<C>();
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>&) {
        return Others<U>(ctx).RouterForward(op, logits, selection_bias, experts, weights,
                                            Stream(ctx));
      },
      [&] { headwise::RouterForward<C>(op, logits, selection_bias, experts, weights, *ctx.pool); });
}

template <typename T>
void RouterBackward(const OpContext& ctx, const Router& op, RowSpan<const Compute<T>> logits,
                    RowSpan<const std::int32_t> experts, RowSpan<const Compute<T>> dweights,
                    RowSpan<Compute<T>> dlogits) {
  FirstBadIndex bad(ctx, Fault::kExpert);
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>&) {
        return Others<U>(ctx).RouterBackward(op, logits, experts, dweights, dlogits, bad.get(),
                                             Stream(ctx));
      },
      [&] {
        headwise::RouterBackward<Compute<T>>(op, logits, experts, dweights, dlogits, *ctx.pool);
      });
  bad.Check();
}

// From routing.experts: groups, on a GPU offsets_on_gpu and row_of_on_gpu, which have their sizes.
template <typename T>
void GroupByExpert(const OpContext& ctx, Routing& routing) {
  const auto experts = routing.experts.Rows<const std::int32_t>();
  const std::int64_t num_experts = routing.groups.num_experts();
  FirstBadIndex bad(ctx, Fault::kExpert);
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>&) {
        const std::int64_t choices = routing.groups.rows();
        const Tensor scratch =
            Scratch(ctx, GroupByExpertScratch(choices, num_experts), DType::kI32);
        absl::Span<std::int64_t> offsets, row_of;
        if (ctx.gpu != nullptr) {
          offsets = Elements<std::int64_t>(routing.offsets_on_gpu);
          row_of = Elements<std::int64_t>(routing.row_of_on_gpu);
        } else {
          routing.groups.row_of.resize(static_cast<std::size_t>(choices));
          offsets = absl::MakeSpan(routing.groups.offsets);
          row_of = absl::MakeSpan(routing.groups.row_of);
        }
        return Others<U>(ctx).GroupByExpert(experts, offsets, row_of, scratch.data<std::int32_t>(),
                                            bad.get(), Stream(ctx));
      },
      [&] { routing.groups = headwise::GroupByExpert(experts, num_experts); });
  bad.Check();
}

// loads [E] (out).
template <typename T>
void CountLoads(const OpContext& ctx, const ExpertRows& rows, absl::Span<Compute<T>> loads) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>&) {
        return Others<U>(ctx).CountLoads(OffsetsOf(rows), loads, Stream(ctx));
      },
      [&] {
        for (std::size_t e = 0; e < loads.size(); ++e) {
          loads[e] = static_cast<Compute<T>>(rows.offsets[e + 1] - rows.offsets[e]);
        }
      });
}

// Loads are whole numbers.
template <typename C>
std::vector<std::int64_t> Counts(absl::Span<const C> loads) {
  return std::vector<std::int64_t>(loads.begin(), loads.end());
}

// *total <- *total + weight times the loss; on a GPU in its memory.
template <typename T>
void AddLoadBalancingLoss(const OpContext& ctx, RowSpan<const Compute<T>> logits,
                          absl::Span<const Compute<T>> loads, std::int64_t tokens, double weight,
                          double* total) {
  using C = Compute<T>;
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>&) {
        const Tensor scratch = Scratch(ctx, LoadBalancingLossScratch(logits.rows, logits.width));
        return Others<U>(ctx).LoadBalancingLoss(logits, loads, tokens, weight, total,
                                                scratch.data<float>(), Stream(ctx));
      },
      [&] {
        std::vector<C> sums(static_cast<std::size_t>(logits.width));
        SumProbabilities<C>(logits, absl::MakeSpan(sums), *ctx.pool);
        *total += weight * LoadBalancingLoss<C>(Counts(loads), sums, tokens);
      });
}

// The gradient of *loss_scale * weight * tokens times the loss; *loss_scale on a GPU in its memory.
template <typename T>
void LoadBalancingBackward(const OpContext& ctx, RowSpan<const Compute<T>> logits,
                           absl::Span<const Compute<T>> loads, std::int64_t tokens, double weight,
                           const double* loss_scale, RowSpan<Compute<T>> dlogits) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>&) {
        return Others<U>(ctx).LoadBalancingBackward(logits, loads, tokens, weight, loss_scale,
                                                    dlogits, Stream(ctx));
      },
      [&] {
        headwise::LoadBalancingBackward<Compute<T>>(
            logits, Counts(loads), tokens, *loss_scale * weight * static_cast<double>(tokens),
            dlogits, *ctx.pool);
      });
}

template <typename T>
void DispatchForward(const OpContext& ctx, const Routing& routing, RowSpan<const T> x,
                     RowSpan<T> rows) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.DispatchForward(RowOf(routing), x, rows, Stream(ctx));
      },
      [&] { headwise::DispatchForward<T>(routing.groups, x, rows, *ctx.pool); });
}

template <typename T>
void DispatchBackward(const OpContext& ctx, const Routing& routing, RowSpan<const T> drows,
                      RowSpan<T> dx) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.DispatchBackward(RowOf(routing), drows, dx, Stream(ctx));
      },
      [&] { headwise::DispatchBackward<T>(routing.groups, drows, dx, *ctx.pool); });
}

template <typename T>
void CombineForward(const OpContext& ctx, const Routing& routing, RowSpan<const T> outputs,
                    RowSpan<T> y) {
  const RowSpan<const Compute<T>> weights = routing.weights.Rows<Compute<T>>();
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.CombineForward(RowOf(routing), weights, outputs, y, Stream(ctx));
      },
      [&] { headwise::CombineForward<T>(routing.groups, weights, outputs, y, *ctx.pool); });
}

template <typename T>
void CombineBackward(const OpContext& ctx, const Routing& routing, RowSpan<const T> outputs,
                     RowSpan<const T> dy, RowSpan<T> doutputs, RowSpan<Compute<T>> dweights) {
  const RowSpan<const Compute<T>> weights = routing.weights.Rows<Compute<T>>();
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.CombineBackward(RowOf(routing), weights, outputs, dy, doutputs, dweights,
                                  Stream(ctx));
      },
      [&] {
        headwise::CombineBackward<T>(routing.groups, weights, outputs, dy, doutputs, dweights,
                                     *ctx.pool);
      });
}

// Choose(), for a product.
template <typename T, typename LaunchOf, typename Cpu>
void ChooseGroupedProduct(const OpContext& ctx, LaunchOf launch, Cpu cpu) {
  if (ctx.gpu == nullptr && ctx.gemm != GemmBackend::kContract) return cpu();
  Choose<T>(ctx, launch, cpu);
}

template <typename T>
void GroupedLinearForward(const OpContext& ctx, const ExpertRows& rows, RowSpan<const T> x,
                          RowSpan<const T> w, RowSpan<const Compute<T>> bias, RowSpan<T> y) {
  ChooseGroupedProduct<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.GroupedLinearForward(OffsetsOf(rows), x, w, bias, y, Stream(ctx));
      },
      [&] {
        headwise::GroupedLinearForward<T, T>(ctx.gemm, rows.offsets, x, w, bias, y, *ctx.pool);
      });
}

template <typename T>
void GroupedLinearBackwardInput(const OpContext& ctx, const ExpertRows& rows, RowSpan<const T> dy,
                                RowSpan<const T> w, RowSpan<T> dx) {
  ChooseGroupedProduct<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.GroupedLinearBackwardInput(OffsetsOf(rows), dy, w, dx, Stream(ctx));
      },
      [&] {
        headwise::GroupedLinearBackwardInput<T, T>(ctx.gemm, rows.offsets, dy, w, dx, *ctx.pool);
      });
}

template <typename T>
void GroupedLinearBackwardWeight(const OpContext& ctx, const ExpertRows& rows, RowSpan<const T> dy,
                                 RowSpan<const T> x, RowSpan<Compute<T>> dw) {
  ChooseGroupedProduct<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.GroupedLinearBackwardWeight(OffsetsOf(rows), dy, x, dw, Stream(ctx));
      },
      [&] {
        headwise::GroupedLinearBackwardWeight<T>(ctx.gemm, rows.offsets, dy, x, dw, *ctx.pool);
      });
}

template <typename T>
void GroupedLinearBackwardBias(const OpContext& ctx, const ExpertRows& rows, RowSpan<const T> dy,
                               RowSpan<Compute<T>> dbias) {
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.GroupedLinearBackwardBias(OffsetsOf(rows), dy, dbias, Stream(ctx));
      },
      [&] { headwise::GroupedLinearBackwardBias<T>(rows.offsets, dy, dbias, *ctx.pool); });
}

}  // namespace headwise::ops::kernels

#endif  // HEADWISE_MODEL_OPS_KERNELS_EXPERTS_H_
