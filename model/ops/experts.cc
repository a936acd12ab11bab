#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/parallel/rules/expert_rules.h"
#include "core/parallel/tensor_layout.h"
#include "model/ops.h"
#include "model/ops/kernels_experts.h"
#include "model/ops/op_support.h"

namespace headwise::ops {
namespace {

// A weight [E, N, K] as the E N rows that the kernels take, and a bias [E, N].
void CheckExpertWeight(const OpContext& ctx, const char* op, const ExpertRows& rows,
                       const Tensor& weight, DType dtype) {
  const auto experts = static_cast<std::int64_t>(rows.offsets.size()) - 1;
  HW_CHECK(weight.defined() && weight.rank() == 3 && weight.dtype() == dtype &&
           weight.device() == ctx.device && weight.dim(0) == experts)
      << op << ": the weight must be [" << experts << ", out, in] of " << dtype
      << (weight.defined() ? ", found " + ToString(weight.shape()) : std::string(", is undefined"));
}

// [rows, width], sorted by expert.
void CheckRows(const OpContext& ctx, const char* op, const char* argument, const ExpertRows& rows,
               const Tensor& tensor, std::int64_t width) {
  CheckTensor(ctx, op, argument, tensor, {rows.count, width}, ctx.compute);
}

// A rule's view of a routing.
rules::RoutingTypes TypesOf(const Routing& routing, const LayoutType& weights,
                            const LayoutType& experts) {
  return {.weights = weights, .experts = experts, .expert_factor = routing.expert_factor};
}

}  // namespace

Routing Route(const OpContext& ctx, const Router& op, const Tensor& logits,
              const Tensor& selection_bias) {
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& logits, const LayoutType& selection_bias) {
        return rules::Route(logits, OrNull(selection_bias), op.chosen);
      },
      logits, selection_bias);
  if (!layout.known) return {.weights = Unknown(ctx), .experts = Unknown(ctx)};
  CheckMatrix(ctx, "Route", "logits", logits, ctx.master());
  const std::int64_t tokens = logits.dim(0), experts = logits.dim(1);
  if (selection_bias.defined()) {
    CheckTensor(ctx, "Route", "selection_bias", selection_bias, {experts}, ctx.master());
  }
  const Shape choices = {tokens, op.chosen};
  Routing routing = {.weights = Result(ctx, choices, ctx.master(), layout.value.weights),
                     .experts = Result(ctx, choices, DType::kI32, layout.value.experts),
                     .groups = {.tokens = tokens, .chosen = op.chosen, .offsets = {}, .row_of = {}},
                     .offsets_on_gpu = {},
                     .row_of_on_gpu = {},
                     .expert_factor = layout.value.expert_factor};
  routing.groups.offsets.assign(static_cast<std::size_t>(experts) + 1, 0);
  if (ctx.device == Device::kCuda) {
    routing.offsets_on_gpu = ctx.Empty({experts + 1}, DType::kI64);
    routing.row_of_on_gpu = ctx.Empty({routing.groups.rows()}, DType::kI64);
  }
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    using C = Compute<T>;
    kernels::RouterForward<T>(ctx, op, logits.Rows<C>(), Elements<const C>(selection_bias),
                              routing);
    kernels::GroupByExpert<T>(ctx, routing);
  });
  return routing;
}

Tensor RouteBackward(const OpContext& ctx, const Router& op, const Tensor& logits,
                     const Routing& routing, const Tensor& dweights) {
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& logits, const LayoutType& weights, const LayoutType& experts,
          const LayoutType& dweights) {
        return rules::RouteBackward(logits, TypesOf(routing, weights, experts), dweights);
      },
      logits, routing.weights, routing.experts, dweights);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "RouteBackward", "logits", logits, ctx.master());
  CheckTensor(ctx, "RouteBackward", "dweights", dweights, routing.weights.shape(), ctx.master());
  const Tensor dlogits = Result(ctx, logits.shape(), ctx.master(), layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    using C = Compute<T>;
    kernels::RouterBackward<T>(ctx, op, logits.Rows<C>(),
                               routing.experts.Rows<const std::int32_t>(), dweights.Rows<C>(),
                               dlogits.Rows<C>());
  });
  return dlogits;
}

Tensor CountLoads(const OpContext& ctx, const Tensor& logits, const Routing& routing) {
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& logits, const LayoutType& weights, const LayoutType& experts) {
        return rules::CountLoads(logits, TypesOf(routing, weights, experts), ctx.master());
      },
      logits, routing.weights, routing.experts);
  if (!layout.known) return Unknown(ctx);
  const Tensor loads = Result(ctx, {routing.groups.num_experts()}, ctx.master(), layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::CountLoads<T>(ctx, RowsOf(routing), Elements<Compute<T>>(loads));
  });
  return loads;
}

void AddBalancingLoss(const OpContext& ctx, const Tensor& logits, const Tensor& loads,
                      std::int64_t tokens, double weight, double* total) {
  const auto layout = Derive(ctx, rules::BalancingLoss, logits, loads);
  if (!layout.known) return;
  CheckMatrix(ctx, "AddBalancingLoss", "logits", logits, ctx.master());
  CheckTensor(ctx, "AddBalancingLoss", "loads", loads, {logits.dim(1)}, ctx.master());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    using C = Compute<T>;
    kernels::AddLoadBalancingLoss<T>(ctx, logits.Rows<const C>(), Elements<const C>(loads), tokens,
                                     weight, total);
  });
}

Tensor AddBalancingGradient(const OpContext& ctx, const Tensor& logits, const Tensor& loads,
                            std::int64_t tokens, double weight, const LossScale& scale,
                            const Tensor& dlogits) {
  const auto layout = Derive(ctx, rules::AddBalancingGradient, logits, loads, dlogits);
  if (!layout.known) return Unknown(ctx);
  CheckTensor(ctx, "AddBalancingGradient", "dlogits", dlogits, logits.shape(), ctx.master());
  CheckTensor(ctx, "AddBalancingGradient", "loads", loads, {logits.dim(1)}, ctx.master());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    using C = Compute<T>;
    kernels::LoadBalancingBackward<T>(ctx, logits.Rows<const C>(), Elements<const C>(loads), tokens,
                                      weight, scale.value, dlogits.Rows<C>());
  });
  return Overwritten(ctx, dlogits, layout.value);
}

ExpertRows RowsOf(const Routing& routing) {
  return {.offsets = routing.groups.offsets,
          .offsets_on_gpu = routing.offsets_on_gpu,
          .count = routing.groups.rows()};
}

Tensor DispatchTokens(const OpContext& ctx, const Routing& routing, const Tensor& x) {
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& weights, const LayoutType& experts, const LayoutType& x) {
        return rules::DispatchTokens(TypesOf(routing, weights, experts), x);
      },
      routing.weights, routing.experts, x);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "DispatchTokens", "x", x, ctx.compute);
  CheckLength("DispatchTokens", "the first dimension of x", x.dim(0), routing.groups.tokens);
  const Tensor rows = Result(ctx, {routing.groups.rows(), x.dim(1)}, ctx.compute, layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::DispatchForward<T>(ctx, routing, x.Rows<T>(), rows.Rows<T>());
  });
  return rows;
}

Tensor DispatchTokensBackward(const OpContext& ctx, const Routing& routing, const Tensor& drows) {
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& weights, const LayoutType& experts, const LayoutType& drows) {
        return rules::DispatchTokensBackward(TypesOf(routing, weights, experts), drows);
      },
      routing.weights, routing.experts, drows);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "DispatchTokensBackward", "drows", drows, ctx.compute);
  CheckRows(ctx, "DispatchTokensBackward", "drows", RowsOf(routing), drows, drows.dim(1));
  const Tensor dx = Result(ctx, {routing.groups.tokens, drows.dim(1)}, ctx.compute, layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::DispatchBackward<T>(ctx, routing, drows.Rows<T>(), dx.Rows<T>());
  });
  return dx;
}

Tensor CombineExperts(const OpContext& ctx, const Routing& routing, const Tensor& outputs) {
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& weights, const LayoutType& experts, const LayoutType& outputs) {
        return rules::CombineExperts(TypesOf(routing, weights, experts), outputs);
      },
      routing.weights, routing.experts, outputs);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "CombineExperts", "outputs", outputs, ctx.compute);
  CheckRows(ctx, "CombineExperts", "outputs", RowsOf(routing), outputs, outputs.dim(1));
  const Tensor y = Result(ctx, {routing.groups.tokens, outputs.dim(1)}, ctx.compute, layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::CombineForward<T>(ctx, routing, outputs.Rows<T>(), y.Rows<T>());
  });
  return y;
}

ExpertGradients CombineExpertsBackward(const OpContext& ctx, const Routing& routing,
                                       const Tensor& outputs, const Tensor& dy) {
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& weights, const LayoutType& experts, const LayoutType& outputs,
          const LayoutType& dy) {
        return rules::CombineExpertsBackward(TypesOf(routing, weights, experts), outputs, dy,
                                             ctx.master());
      },
      routing.weights, routing.experts, outputs, dy);
  if (!layout.known) return {.outputs = Unknown(ctx), .weights = Unknown(ctx)};
  CheckMatrix(ctx, "CombineExpertsBackward", "outputs", outputs, ctx.compute);
  CheckRows(ctx, "CombineExpertsBackward", "outputs", RowsOf(routing), outputs, outputs.dim(1));
  CheckTensor(ctx, "CombineExpertsBackward", "dy", dy, {routing.groups.tokens, outputs.dim(1)},
              ctx.compute);
  const ExpertGradients d = {
      .outputs = Result(ctx, outputs.shape(), ctx.compute, layout.value.outputs),
      .weights = Result(ctx, routing.weights.shape(), ctx.master(), layout.value.weights)};
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::CombineBackward<T>(ctx, routing, outputs.Rows<T>(), dy.Rows<T>(), d.outputs.Rows<T>(),
                                d.weights.Rows<Compute<T>>());
  });
  return d;
}

Tensor ExpertLinear(const OpContext& ctx, const ExpertRows& rows, const Tensor& x,
                    const Tensor& weight, const Tensor& bias) {
  const auto layout = Derive(
      ctx,
      [](const LayoutType& x, const LayoutType& weight, const LayoutType& bias) {
        return rules::ExpertLinear(x, weight, OrNull(bias));
      },
      x, weight, bias);
  if (!layout.known) return Unknown(ctx);
  CheckExpertWeight(ctx, "ExpertLinear", rows, weight, ctx.compute);
  CheckRows(ctx, "ExpertLinear", "x", rows, x, weight.dim(2));
  if (bias.defined()) {
    CheckTensor(ctx, "ExpertLinear", "bias", bias, {weight.dim(0), weight.dim(1)}, ctx.master());
  }
  const Tensor y = Result(ctx, {rows.count, weight.dim(1)}, ctx.compute, layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::GroupedLinearForward<T>(ctx, rows, x.Rows<T>(), weight.Rows<T>(),
                                     RowsOrNone<const Compute<T>>(bias), y.Rows<T>());
  });
  return y;
}

Tensor ExpertLinearBackwardInput(const OpContext& ctx, const ExpertRows& rows, const Tensor& dy,
                                 const Tensor& weight) {
  const auto layout = Derive(ctx, rules::ExpertLinearBackwardInput, dy, weight);
  if (!layout.known) return Unknown(ctx);
  CheckExpertWeight(ctx, "ExpertLinearBackwardInput", rows, weight, ctx.compute);
  CheckRows(ctx, "ExpertLinearBackwardInput", "dy", rows, dy, weight.dim(1));
  const Tensor dx = Result(ctx, {rows.count, weight.dim(2)}, ctx.compute, layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::GroupedLinearBackwardInput<T>(ctx, rows, dy.Rows<T>(), weight.Rows<T>(), dx.Rows<T>());
  });
  return dx;
}

void ExpertLinearBackwardWeight(const OpContext& ctx, const ExpertRows& rows, const Tensor& dy,
                                const Tensor& x, Tensor& dweight) {
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& dy, const LayoutType& x) {
        return rules::ExpertLinearBackwardWeight(dy, x, ctx.master());
      },
      dy, x);
  if (!layout.known || !OfShare(ctx, "ExpertLinearBackwardWeight", dweight, layout.value)) {
    return Forget(ctx, dweight);
  }
  CheckExpertWeight(ctx, "ExpertLinearBackwardWeight", rows, dweight, ctx.master());
  CheckRows(ctx, "ExpertLinearBackwardWeight", "dy", rows, dy, dweight.dim(1));
  CheckRows(ctx, "ExpertLinearBackwardWeight", "x", rows, x, dweight.dim(2));
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::GroupedLinearBackwardWeight<T>(ctx, rows, dy.Rows<T>(), x.Rows<T>(),
                                            dweight.Rows<Compute<T>>());
  });
  dweight = Overwritten(ctx, dweight, layout.value);
}

void ExpertLinearBackwardBias(const OpContext& ctx, const ExpertRows& rows, const Tensor& dy,
                              Tensor& dbias) {
  const auto layout = Derive(
      ctx, [&](const LayoutType& dy) { return rules::ExpertLinearBackwardBias(dy, ctx.master()); },
      dy);
  if (!layout.known || !OfShare(ctx, "ExpertLinearBackwardBias", dbias, layout.value)) {
    return Forget(ctx, dbias);
  }
  CheckMatrix(ctx, "ExpertLinearBackwardBias", "dbias", dbias, ctx.master());
  CheckLength("ExpertLinearBackwardBias", "the first dimension of dbias", dbias.dim(0),
              static_cast<std::int64_t>(rows.offsets.size()) - 1);
  CheckRows(ctx, "ExpertLinearBackwardBias", "dy", rows, dy, dbias.dim(1));
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::GroupedLinearBackwardBias<T>(ctx, rows, dy.Rows<T>(), dbias.Rows<Compute<T>>());
  });
  dbias = Overwritten(ctx, dbias, layout.value);
}

}  // namespace headwise::ops
