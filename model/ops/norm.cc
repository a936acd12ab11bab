#include "core/base/status_macros.h"
#include "core/parallel/op_rules.h"
#include "core/parallel/rules/layer_rules.h"
#include "model/ops.h"
#include "model/ops/kernels_norm.h"
#include "model/ops/op_support.h"

namespace headwise::ops {
namespace {

// A weight or its gradient: [N], or undefined for a norm without one.
void CheckWeight(const OpContext& ctx, const char* op_name, const char* argument,
                 const headwise::RmsNorm& op, const Tensor& weight, std::int64_t width) {
  if (op.style == RmsNormStyle::kScaleless) {
    CheckUndefined(op_name, argument, weight);
  } else {
    CheckTensor(ctx, op_name, argument, weight, {width}, ctx.master());
  }
}

void CheckHeads(const char* op_name, const headwise::RmsNorm& op, std::int64_t head_dim,
                const Tensor& x) {
  HW_CHECK(op.style == RmsNormStyle::kScaleless) << op_name << ": heads have no weight";
  HW_CHECK_EQ(x.dim(1) % head_dim, 0) << op_name << ": a row is of whole heads";
}

// [T, heads D] with each head normed: the rules are those of [T, heads, D].
constexpr absl::string_view kHeadFactors[] = {"G", "M"};

LayoutType ByHead(const LayoutType& x) { return SplitDim(x, 1, kHeadFactors); }
LayoutType Together(const LayoutType& x) { return MergeDims(x, 1, 2); }

absl::StatusOr<LayoutType> HeadNormRule(const LayoutType& x) {
  HW_ASSIGN_OR_RETURN(const LayoutType y, rules::RmsNorm(ByHead(x), nullptr));
  return Together(y);
}

absl::StatusOr<LayoutType> HeadNormBackwardRule(const LayoutType& x, const LayoutType& dy) {
  HW_ASSIGN_OR_RETURN(const rules::NormGradients d,
                      rules::RmsNormBackward(ByHead(x), nullptr, ByHead(dy), DType::kF32));
  return Together(d.x);
}

}  // namespace

Tensor RmsNorm(const OpContext& ctx, const headwise::RmsNorm& op, const Tensor& x,
               const Tensor& weight) {
  const auto layout = Derive(
      ctx,
      [](const LayoutType& x, const LayoutType& weight) {
        return rules::RmsNorm(x, OrNull(weight));
      },
      x, weight);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "RmsNorm", "x", x, ctx.compute);
  CheckWeight(ctx, "RmsNorm", "weight", op, weight, x.dim(1));
  const Tensor y = Result(ctx, x.shape(), ctx.compute, layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::RmsNormForward<T>(ctx, op, x.Rows<T>(), Elements<const Compute<T>>(weight),
                               y.Rows<T>());
  });
  return y;
}

Tensor RmsNormBackward(const OpContext& ctx, const headwise::RmsNorm& op, const Tensor& x,
                       const Tensor& weight, const Tensor& dy, Tensor& dweight) {
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& x, const LayoutType& weight, const LayoutType& dy) {
        return rules::RmsNormBackward(x, OrNull(weight), dy, ctx.master());
      },
      x, weight, dy);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "RmsNormBackward", "x", x, ctx.compute);
  CheckTensor(ctx, "RmsNormBackward", "dy", dy, x.shape(), ctx.compute);
  CheckWeight(ctx, "RmsNormBackward", "weight", op, weight, x.dim(1));
  CheckWeight(ctx, "RmsNormBackward", "dweight", op, dweight, x.dim(1));
  const Tensor dx = Result(ctx, x.shape(), ctx.compute, layout.value.x);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::RmsNormBackward<T>(ctx, op, x.Rows<T>(), Elements<const Compute<T>>(weight),
                                dy.Rows<T>(), dx.Rows<T>(), Elements<Compute<T>>(dweight));
  });
  if (dweight.defined()) dweight = Overwritten(ctx, dweight, layout.value.weight);
  return dx;
}

Tensor HeadRmsNorm(const OpContext& ctx, const headwise::RmsNorm& op, std::int64_t head_dim,
                   const Tensor& x) {
  const auto layout = Derive(ctx, HeadNormRule, x);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "HeadRmsNorm", "x", x, ctx.compute);
  CheckHeads("HeadRmsNorm", op, head_dim, x);
  const Tensor y = Result(ctx, x.shape(), ctx.compute, layout.value);
  const Shape heads = {x.size() / head_dim, head_dim};
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::RmsNormForward<T>(ctx, op, x.View(heads).Rows<T>(), {}, y.View(heads).Rows<T>());
  });
  return y;
}

Tensor HeadRmsNormBackward(const OpContext& ctx, const headwise::RmsNorm& op, std::int64_t head_dim,
                           const Tensor& x, const Tensor& dy) {
  const auto layout = Derive(ctx, HeadNormBackwardRule, x, dy);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "HeadRmsNormBackward", "x", x, ctx.compute);
  CheckHeads("HeadRmsNormBackward", op, head_dim, x);
  CheckTensor(ctx, "HeadRmsNormBackward", "dy", dy, x.shape(), ctx.compute);
  const Tensor dx = Result(ctx, x.shape(), ctx.compute, layout.value);
  const Shape heads = {x.size() / head_dim, head_dim};
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::RmsNormBackward<T>(ctx, op, x.View(heads).Rows<T>(), {}, dy.View(heads).Rows<T>(),
                                dx.View(heads).Rows<T>(), {});
  });
  return dx;
}

}  // namespace headwise::ops
