#include "kernels/gemm/gemm.h"
#include "model/ops.h"
#include "model/ops/op_support.h"

namespace headwise::ops {

Tensor Linear(const OpContext& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  CheckMatrix(ctx, "Linear", "x", x, ctx.compute);
  CheckMatrix(ctx, "Linear", "weight", weight, ctx.compute);
  CheckLength("Linear", "a row of weight", weight.dim(1), x.dim(1));
  if (bias.defined()) CheckTensor(ctx, "Linear", "bias", bias, {weight.dim(0)}, ctx.master());
  const Tensor y = ctx.Empty({x.dim(0), weight.dim(0)});
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    LinearForward<T, T>(ctx.gemm, x.Rows<T>(), weight.Rows<T>(), Elements<const Compute<T>>(bias),
                        y.Rows<T>(), *ctx.pool);
  });
  return y;
}

void LinearToMaster(const OpContext& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                    const Tensor& z) {
  CheckMatrix(ctx, "LinearToMaster", "x", x, ctx.compute);
  CheckMatrix(ctx, "LinearToMaster", "weight", weight, ctx.compute);
  CheckLength("LinearToMaster", "a row of weight", weight.dim(1), x.dim(1));
  if (bias.defined()) {
    CheckTensor(ctx, "LinearToMaster", "bias", bias, {weight.dim(0)}, ctx.master());
  }
  CheckTensor(ctx, "LinearToMaster", "z", z, {x.dim(0), weight.dim(0)}, ctx.master());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    LinearForward<T, Compute<T>>(ctx.gemm, x.Rows<T>(), weight.Rows<T>(),
                                 Elements<const Compute<T>>(bias), z.Rows<Compute<T>>(), *ctx.pool);
  });
}

Tensor LinearBackwardInput(const OpContext& ctx, const Tensor& dy, const Tensor& weight) {
  CheckMatrix(ctx, "LinearBackwardInput", "dy", dy, ctx.compute);
  CheckMatrix(ctx, "LinearBackwardInput", "weight", weight, ctx.compute);
  CheckLength("LinearBackwardInput", "a row of dy", dy.dim(1), weight.dim(0));
  const Tensor dx = ctx.Empty({dy.dim(0), weight.dim(1)});
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    headwise::LinearBackwardInput<T, T>(ctx.gemm, dy.Rows<T>(), weight.Rows<T>(), dx.Rows<T>(),
                                        *ctx.pool);
  });
  return dx;
}

void LinearBackwardWeight(const OpContext& ctx, const Tensor& dy, const Tensor& x,
                          const Tensor& dweight) {
  CheckMatrix(ctx, "LinearBackwardWeight", "dy", dy, ctx.compute);
  CheckMatrix(ctx, "LinearBackwardWeight", "x", x, ctx.compute);
  CheckLength("LinearBackwardWeight", "the first dimension of x", x.dim(0), dy.dim(0));
  CheckTensor(ctx, "LinearBackwardWeight", "dweight", dweight, {dy.dim(1), x.dim(1)}, ctx.master());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    headwise::LinearBackwardWeight<T>(ctx.gemm, dy.Rows<T>(), x.Rows<T>(),
                                      dweight.Rows<Compute<T>>(), *ctx.pool);
  });
}

void LinearBackwardBias(const OpContext& ctx, const Tensor& dy, const Tensor& dbias) {
  CheckMatrix(ctx, "LinearBackwardBias", "dy", dy, ctx.compute);
  CheckTensor(ctx, "LinearBackwardBias", "dbias", dbias, {dy.dim(1)}, ctx.master());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    headwise::LinearBackwardBias<T>(dy.Rows<T>(), Elements<Compute<T>>(dbias), *ctx.pool);
  });
}

}  // namespace headwise::ops
