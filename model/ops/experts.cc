#include <cstdint>
#include <string>
#include <vector>

#include "kernels/moe/balancing.h"
#include "kernels/moe/grouped_linear.h"
#include "kernels/moe/grouping.h"
#include "model/ops.h"
#include "model/ops/op_support.h"

namespace headwise::ops {
namespace {

// A weight [E, N, K] as the E N rows that the kernels take, and a bias [E, N].
void CheckExpertWeight(const OpContext& ctx, const char* op, const Routing& routing,
                       const Tensor& weight, DType dtype) {
  HW_CHECK(weight.defined() && weight.rank() == 3 && weight.dtype() == dtype &&
           weight.device() == ctx.device && weight.dim(0) == routing.groups.num_experts())
      << op << ": the weight must be [" << routing.groups.num_experts() << ", out, in] of " << dtype
      << (weight.defined() ? ", found " + ToString(weight.shape()) : std::string(", is undefined"));
}

// [T k, width] rows sorted by expert.
void CheckRows(const OpContext& ctx, const char* op, const char* argument, const Routing& routing,
               const Tensor& rows, std::int64_t width) {
  CheckTensor(ctx, op, argument, rows, {routing.groups.rows(), width}, ctx.compute);
}

std::vector<std::int64_t> Counts(const Routing& routing) {
  std::vector<std::int64_t> counts;
  for (std::int64_t e = 0; e < routing.groups.num_experts(); ++e) {
    counts.push_back(routing.groups.count(e));
  }
  return counts;
}

}  // namespace

Routing Route(const OpContext& ctx, const Router& op, const Tensor& logits,
              const Tensor& selection_bias) {
  CheckMatrix(ctx, "Route", "logits", logits, ctx.master());
  const std::int64_t tokens = logits.dim(0), experts = logits.dim(1);
  if (selection_bias.defined()) {
    CheckTensor(ctx, "Route", "selection_bias", selection_bias, {experts}, ctx.master());
  }
  Routing routing = {.weights = ctx.Empty({tokens, op.chosen}, ctx.master()),
                     .experts = ctx.Empty({tokens, op.chosen}, DType::kI32),
                     .groups = {.tokens = tokens, .chosen = op.chosen}};
  routing.groups.offsets.assign(static_cast<std::size_t>(experts) + 1, 0);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    using C = Compute<T>;
    RouterForward<C>(op, logits.Rows<C>(), Elements<const C>(selection_bias),
                     routing.experts.Rows<std::int32_t>(), routing.weights.Rows<C>(), *ctx.pool);
    routing.groups = GroupByExpert(routing.experts.Rows<const std::int32_t>(), experts);
  });
  return routing;
}

Tensor RouteBackward(const OpContext& ctx, const Router& op, const Tensor& logits,
                     const Routing& routing, const Tensor& dweights) {
  CheckMatrix(ctx, "RouteBackward", "logits", logits, ctx.master());
  CheckTensor(ctx, "RouteBackward", "dweights", dweights, routing.weights.shape(), ctx.master());
  const Tensor dlogits = ctx.Empty(logits.shape(), ctx.master());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    using C = Compute<T>;
    RouterBackward<C>(op, logits.Rows<C>(), routing.experts.Rows<const std::int32_t>(),
                      dweights.Rows<C>(), dlogits.Rows<C>(), *ctx.pool);
  });
  return dlogits;
}

void CountLoads(const OpContext& ctx, const Routing& routing, const Tensor& loads) {
  CheckTensor(ctx, "CountLoads", "loads", loads, {routing.groups.num_experts()}, ctx.master());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    using C = Compute<T>;
    for (std::int64_t e = 0; e < routing.groups.num_experts(); ++e) {
      loads.data<C>()[e] = static_cast<C>(routing.groups.count(e));
    }
  });
}

double BalancingLoss(const OpContext& ctx, const Tensor& logits, const Routing& routing) {
  CheckMatrix(ctx, "BalancingLoss", "logits", logits, ctx.master());
  double loss = 0;
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    using C = Compute<T>;
    std::vector<C> sums(static_cast<std::size_t>(routing.groups.num_experts()));
    SumProbabilities<C>(logits.Rows<const C>(), absl::MakeSpan(sums), *ctx.pool);
    loss = LoadBalancingLoss<C>(Counts(routing), sums, routing.groups.tokens);
  });
  return loss;
}

void AddBalancingGradient(const OpContext& ctx, const Tensor& logits, const Routing& routing,
                          double loss_scale, const Tensor& dlogits) {
  CheckTensor(ctx, "AddBalancingGradient", "dlogits", dlogits, logits.shape(), ctx.master());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    using C = Compute<T>;
    LoadBalancingBackward<C>(logits.Rows<const C>(), Counts(routing), routing.groups.tokens,
                             loss_scale, dlogits.Rows<C>(), *ctx.pool);
  });
}

Tensor DispatchTokens(const OpContext& ctx, const Routing& routing, const Tensor& x) {
  CheckMatrix(ctx, "DispatchTokens", "x", x, ctx.compute);
  CheckLength("DispatchTokens", "the first dimension of x", x.dim(0), routing.groups.tokens);
  const Tensor rows = ctx.Empty({routing.groups.rows(), x.dim(1)});
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    DispatchForward<T>(routing.groups, x.Rows<T>(), rows.Rows<T>(), *ctx.pool);
  });
  return rows;
}

Tensor DispatchTokensBackward(const OpContext& ctx, const Routing& routing, const Tensor& drows) {
  CheckMatrix(ctx, "DispatchTokensBackward", "drows", drows, ctx.compute);
  CheckRows(ctx, "DispatchTokensBackward", "drows", routing, drows, drows.dim(1));
  const Tensor dx = ctx.Empty({routing.groups.tokens, drows.dim(1)});
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    DispatchBackward<T>(routing.groups, drows.Rows<T>(), dx.Rows<T>(), *ctx.pool);
  });
  return dx;
}

Tensor CombineExperts(const OpContext& ctx, const Routing& routing, const Tensor& outputs) {
  CheckMatrix(ctx, "CombineExperts", "outputs", outputs, ctx.compute);
  CheckRows(ctx, "CombineExperts", "outputs", routing, outputs, outputs.dim(1));
  const Tensor y = ctx.Empty({routing.groups.tokens, outputs.dim(1)});
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    CombineForward<T>(routing.groups, routing.weights.Rows<Compute<T>>(), outputs.Rows<T>(),
                      y.Rows<T>(), *ctx.pool);
  });
  return y;
}

ExpertGradients CombineExpertsBackward(const OpContext& ctx, const Routing& routing,
                                       const Tensor& outputs, const Tensor& dy) {
  CheckMatrix(ctx, "CombineExpertsBackward", "outputs", outputs, ctx.compute);
  CheckRows(ctx, "CombineExpertsBackward", "outputs", routing, outputs, outputs.dim(1));
  CheckTensor(ctx, "CombineExpertsBackward", "dy", dy, {routing.groups.tokens, outputs.dim(1)},
              ctx.compute);
  const ExpertGradients d = {.outputs = ctx.Empty(outputs.shape()),
                             .weights = ctx.Empty(routing.weights.shape(), ctx.master())};
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    using C = Compute<T>;
    CombineBackward<T>(routing.groups, routing.weights.Rows<C>(), outputs.Rows<T>(), dy.Rows<T>(),
                       d.outputs.Rows<T>(), d.weights.Rows<C>(), *ctx.pool);
  });
  return d;
}

Tensor ExpertLinear(const OpContext& ctx, const Routing& routing, const Tensor& x,
                    const Tensor& weight, const Tensor& bias) {
  CheckExpertWeight(ctx, "ExpertLinear", routing, weight, ctx.compute);
  CheckRows(ctx, "ExpertLinear", "x", routing, x, weight.dim(2));
  if (bias.defined()) {
    CheckTensor(ctx, "ExpertLinear", "bias", bias, {weight.dim(0), weight.dim(1)}, ctx.master());
  }
  const Tensor y = ctx.Empty({routing.groups.rows(), weight.dim(1)});
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    GroupedLinearForward<T, T>(ctx.gemm, routing.groups.offsets, x.Rows<T>(), weight.Rows<T>(),
                               RowsOrNone<const Compute<T>>(bias), y.Rows<T>(), *ctx.pool);
  });
  return y;
}

Tensor ExpertLinearBackwardInput(const OpContext& ctx, const Routing& routing, const Tensor& dy,
                                 const Tensor& weight) {
  CheckExpertWeight(ctx, "ExpertLinearBackwardInput", routing, weight, ctx.compute);
  CheckRows(ctx, "ExpertLinearBackwardInput", "dy", routing, dy, weight.dim(1));
  const Tensor dx = ctx.Empty({routing.groups.rows(), weight.dim(2)});
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    GroupedLinearBackwardInput<T, T>(ctx.gemm, routing.groups.offsets, dy.Rows<T>(),
                                     weight.Rows<T>(), dx.Rows<T>(), *ctx.pool);
  });
  return dx;
}

void ExpertLinearBackwardWeight(const OpContext& ctx, const Routing& routing, const Tensor& dy,
                                const Tensor& x, const Tensor& dweight) {
  CheckExpertWeight(ctx, "ExpertLinearBackwardWeight", routing, dweight, ctx.master());
  CheckRows(ctx, "ExpertLinearBackwardWeight", "dy", routing, dy, dweight.dim(1));
  CheckRows(ctx, "ExpertLinearBackwardWeight", "x", routing, x, dweight.dim(2));
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    GroupedLinearBackwardWeight<T>(ctx.gemm, routing.groups.offsets, dy.Rows<T>(), x.Rows<T>(),
                                   dweight.Rows<Compute<T>>(), *ctx.pool);
  });
}

void ExpertLinearBackwardBias(const OpContext& ctx, const Routing& routing, const Tensor& dy,
                              const Tensor& dbias) {
  CheckMatrix(ctx, "ExpertLinearBackwardBias", "dbias", dbias, ctx.master());
  CheckLength("ExpertLinearBackwardBias", "the first dimension of dbias", dbias.dim(0),
              routing.groups.num_experts());
  CheckRows(ctx, "ExpertLinearBackwardBias", "dy", routing, dy, dbias.dim(1));
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    GroupedLinearBackwardBias<T>(routing.groups.offsets, dy.Rows<T>(), dbias.Rows<Compute<T>>(),
                                 *ctx.pool);
  });
}

}  // namespace headwise::ops
