#include "core/parallel/index_rule.h"
#include "core/parallel/rules/layer_rules.h"
#include "model/ops.h"
#include "model/ops/kernels_elementwise.h"
#include "model/ops/kernels_linear.h"
#include "model/ops/op_support.h"

namespace headwise::ops {
namespace {

void CheckLinear(const OpContext& ctx, const char* op, const Tensor& x, const Tensor& weight,
                 const Tensor& bias) {
  CheckMatrix(ctx, op, "x", x, ctx.compute);
  CheckMatrix(ctx, op, "weight", weight, ctx.compute);
  CheckLength(op, "a row of weight", weight.dim(1), x.dim(1));
  if (bias.defined()) CheckTensor(ctx, op, "bias", bias, {weight.dim(0)}, ctx.master());
}

auto LinearRule(DType dtype) {
  return [dtype](const LayoutType& x, const LayoutType& weight, const LayoutType& bias) {
    return rules::Linear(x, weight, OrNull(bias), dtype);
  };
}

// dy in the compute dtype. A term of a sum over ranks stays one when it is rounded here, as do those
// that a product rounds.
Tensor Round(const OpContext& ctx, const Tensor& dy) {
  if (ctx.master() == ctx.compute) return dy;
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& dy) {
        return DeriveIndexed({.op = "round", .letters = "tn->tn", .dtype = ctx.compute},
                             {{"dy", dy}});
      },
      dy);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "LinearBackwardFromMaster", "dy", dy, ctx.master());
  const Tensor rounded = Result(ctx, dy.shape(), ctx.compute, layout.value);
  Convert(ctx, dy, rounded);
  return rounded;
}

}  // namespace

Tensor Linear(const OpContext& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const auto layout = Derive(ctx, LinearRule(ctx.compute), x, weight, bias);
  if (!layout.known) return Unknown(ctx);
  CheckLinear(ctx, "Linear", x, weight, bias);
  const Tensor y = Result(ctx, {x.dim(0), weight.dim(0)}, ctx.compute, layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::LinearForward<T, T>(ctx, x.Rows<T>(), weight.Rows<T>(),
                                 Elements<const Compute<T>>(bias), y.Rows<T>());
  });
  return y;
}

Tensor LinearToMaster(const OpContext& ctx, const Tensor& x, const Tensor& weight,
                      const Tensor& bias) {
  const auto layout = Derive(ctx, LinearRule(ctx.master()), x, weight, bias);
  if (!layout.known) return Unknown(ctx);
  CheckLinear(ctx, "LinearToMaster", x, weight, bias);
  const Tensor z = Result(ctx, {x.dim(0), weight.dim(0)}, ctx.master(), layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::LinearForward<T, Compute<T>>(ctx, x.Rows<T>(), weight.Rows<T>(),
                                          Elements<const Compute<T>>(bias), z.Rows<Compute<T>>());
  });
  return z;
}

Tensor AddBias(const OpContext& ctx, const Tensor& y, const Tensor& bias) {
  const auto layout = Derive(
      ctx,
      [](const LayoutType& y, const LayoutType& bias) {
        return DeriveIndexed({.op = "bias", .letters = "tn,n->tn"}, {{"y", y}, {"bias", bias}});
      },
      y, bias);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "AddBias", "y", y, ctx.compute);
  CheckTensor(ctx, "AddBias", "bias", bias, {y.dim(1)}, ctx.master());
  const Tensor out = Result(ctx, y.shape(), ctx.compute, layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::AddBias<T>(ctx, y.Rows<T>(), Elements<const Compute<T>>(bias), out.Rows<T>());
  });
  return out;
}

Tensor LinearBackwardInput(const OpContext& ctx, const Tensor& dy, const Tensor& weight) {
  const auto layout = Derive(ctx, rules::LinearBackwardInput, dy, weight);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "LinearBackwardInput", "dy", dy, ctx.compute);
  CheckMatrix(ctx, "LinearBackwardInput", "weight", weight, ctx.compute);
  CheckLength("LinearBackwardInput", "a row of dy", dy.dim(1), weight.dim(0));
  const Tensor dx = Result(ctx, {dy.dim(0), weight.dim(1)}, ctx.compute, layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::LinearBackwardInput<T>(ctx, dy.Rows<T>(), weight.Rows<T>(), dx.Rows<T>());
  });
  return dx;
}

void LinearBackwardWeight(const OpContext& ctx, const Tensor& dy, const Tensor& x,
                          Tensor& dweight) {
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& dy, const LayoutType& x) {
        return rules::LinearBackwardWeight(dy, x, ctx.master());
      },
      dy, x);
  if (!layout.known || !OfShare(ctx, "LinearBackwardWeight", dweight, layout.value)) {
    return Forget(ctx, dweight);
  }
  CheckMatrix(ctx, "LinearBackwardWeight", "dy", dy, ctx.compute);
  CheckMatrix(ctx, "LinearBackwardWeight", "x", x, ctx.compute);
  CheckLength("LinearBackwardWeight", "the first dimension of x", x.dim(0), dy.dim(0));
  CheckTensor(ctx, "LinearBackwardWeight", "dweight", dweight, {dy.dim(1), x.dim(1)}, ctx.master());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::LinearBackwardWeight<T>(ctx, dy.Rows<T>(), x.Rows<T>(), dweight.Rows<Compute<T>>());
  });
  dweight = Overwritten(ctx, dweight, layout.value);
}

void LinearBackwardBias(const OpContext& ctx, const Tensor& dy, Tensor& dbias) {
  const auto layout = Derive(
      ctx, [&](const LayoutType& dy) { return rules::LinearBackwardBias(dy, ctx.master()); }, dy);
  if (!layout.known || !OfShare(ctx, "LinearBackwardBias", dbias, layout.value)) {
    return Forget(ctx, dbias);
  }
  CheckMatrix(ctx, "LinearBackwardBias", "dy", dy, ctx.compute);
  CheckTensor(ctx, "LinearBackwardBias", "dbias", dbias, {dy.dim(1)}, ctx.master());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::LinearBackwardBias<T>(ctx, dy.Rows<T>(), Elements<Compute<T>>(dbias));
  });
  dbias = Overwritten(ctx, dbias, layout.value);
}

Tensor LinearBackwardFromMaster(const OpContext& ctx, const Tensor& dy, const Tensor& x,
                                const Tensor& weight, Tensor& dweight, Tensor& dbias) {
  const Tensor rounded = Round(ctx, dy);
  LinearBackwardWeight(ctx, rounded, x, dweight);
  if (dbias.defined()) LinearBackwardBias(ctx, rounded, dbias);
  return LinearBackwardInput(ctx, rounded, weight);
}

}  // namespace headwise::ops
