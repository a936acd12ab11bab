#include <type_traits>

#include "kernels/common/reductions.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "model/ops.h"
#include "model/ops/op_support.h"

namespace headwise::ops {

void CrossEntropy(const OpContext& ctx, const LogitTransform& op, const Tensor& z,
                  absl::Span<const std::int32_t> targets, double loss_scale, const Tensor& losses,
                  const Tensor& dz) {
  CheckMatrix(ctx, "CrossEntropy", "z", z, ctx.master());
  CheckLength("CrossEntropy", "targets", static_cast<std::int64_t>(targets.size()), z.dim(0));
  CheckTensor(ctx, "CrossEntropy", "losses", losses, {z.dim(0)}, ctx.master());
  if (dz.defined()) CheckTensor(ctx, "CrossEntropy", "dz", dz, z.shape(), ctx.compute);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    headwise::CrossEntropy<T>(op, z.Rows<Compute<T>>(), targets, loss_scale,
                              Elements<Compute<T>>(losses), RowsOrNone<T>(dz), *ctx.pool);
  });
}

double SumLosses(const OpContext& ctx, const Tensor& losses) {
  CheckTensor(ctx, "SumLosses", "losses", losses, {losses.size()}, ctx.master());
  double sum = 0;
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    if constexpr (std::is_same_v<T, double>) {
      AdjacentPairAccumulator<double> tree;  // the kernel's order
      for (const double loss : Elements<const double>(losses)) tree.Add(loss);
      sum = tree.Total();
    } else {
      sum = headwise::SumLosses(Elements<const float>(losses));
    }
  });
  return sum;
}

void TransformLogitsInPlace(const OpContext& ctx, const LogitTransform& op, const Tensor& z) {
  CheckMatrix(ctx, "TransformLogitsInPlace", "z", z, DType::kF32);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    headwise::TransformLogits(op, z.Rows<float>(), z.Rows<float>(), *ctx.pool);
  });
}

}  // namespace headwise::ops
