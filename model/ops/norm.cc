#include "kernels/rms_norm/rms_norm.h"
#include "model/ops.h"
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

}  // namespace

Tensor RmsNorm(const OpContext& ctx, const headwise::RmsNorm& op, const Tensor& x,
               const Tensor& weight) {
  CheckMatrix(ctx, "RmsNorm", "x", x, ctx.compute);
  CheckWeight(ctx, "RmsNorm", "weight", op, weight, x.dim(1));
  const Tensor y = ctx.Empty(x.shape());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    RmsNormForward<T>(op, x.Rows<T>(), Elements<const Compute<T>>(weight), y.Rows<T>(), *ctx.pool);
  });
  return y;
}

Tensor RmsNormBackward(const OpContext& ctx, const headwise::RmsNorm& op, const Tensor& x,
                       const Tensor& weight, const Tensor& dy, const Tensor& dweight) {
  CheckMatrix(ctx, "RmsNormBackward", "x", x, ctx.compute);
  CheckTensor(ctx, "RmsNormBackward", "dy", dy, x.shape(), ctx.compute);
  CheckWeight(ctx, "RmsNormBackward", "weight", op, weight, x.dim(1));
  CheckWeight(ctx, "RmsNormBackward", "dweight", op, dweight, x.dim(1));
  const Tensor dx = ctx.Empty(x.shape());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    headwise::RmsNormBackward<T>(op, x.Rows<T>(), Elements<const Compute<T>>(weight), dy.Rows<T>(),
                                 dx.Rows<T>(), Elements<Compute<T>>(dweight), *ctx.pool);
  });
  return dx;
}

}  // namespace headwise::ops
