#include "core/parallel/tensor_layout.h"
#include "model/ops.h"
#include "model/ops/kernels.h"
#include "model/ops/op_support.h"

namespace headwise::ops {
namespace {

// On types alone a step's result comes from nowhere: of another shape than x it is memory of its
// own, to be counted as the other activations are.
Tensor Counted(const OpContext& ctx, const Tensor& x, const Tensor& result) {
  if (ctx.device != Device::kMeta || !LayoutOf(result).defined() || result.shape() == x.shape()) {
    return result;
  }
  return TensorLayout::Attach(ctx.Empty(result.shape(), result.dtype()), LayoutOf(result));
}

}  // namespace

Tensor Cross(const OpContext& ctx, absl::string_view boundary, const Tensor& x) {
  return ctx.sharding == nullptr ? x : Counted(ctx, x, ctx.sharding->Cross(boundary, x));
}

Tensor CrossBackward(const OpContext& ctx, absl::string_view boundary, const Tensor& gradient) {
  return ctx.sharding == nullptr
             ? gradient
             : Counted(ctx, gradient, ctx.sharding->CrossBackward(boundary, gradient));
}

void CrossGradient(const OpContext& ctx, absl::string_view boundary, Tensor& gradient) {
  if (ctx.sharding == nullptr) return;
  CopyGradient(ctx, ctx.sharding->CrossBackward(boundary, gradient), gradient);
}

void CopyGradient(const OpContext& ctx, const Tensor& value, Tensor& gradient) {
  const LayoutType layout = LayoutOf(value);
  if (ctx.sharding != nullptr &&
      (!layout.defined() || !OfShare(ctx, "CopyGradient", gradient, layout))) {
    return Forget(ctx, gradient);
  }
  CheckTensor(ctx, "CopyGradient", "value", value, gradient.shape(), ctx.master());
  if (ctx.device != Device::kMeta && value.raw_data() != gradient.raw_data()) {
    kernels::CopyBytes(ctx, gradient.raw_data(), value.raw_data(), value.bytes());
  }
  gradient = Overwritten(ctx, gradient, LayoutOf(value));
}

void NoteDual(const OpContext& ctx, const Tensor& gradient, const Tensor& value) {
  if (ctx.sharding == nullptr) return;
  ctx.sharding->checker().Note(CheckDual(LayoutOf(gradient), LayoutOf(value)));
}

std::int64_t TokensOfAllRanks(const OpContext& ctx, const Tensor& x) {
  const LayoutType layout = LayoutOf(x);
  return ctx.sharding != nullptr && layout.defined() ? layout.GlobalShape()[0] : x.dim(0);
}

bool Communicates(const OpContext& ctx, absl::string_view boundary) {
  return ctx.sharding != nullptr && ctx.sharding->Communicates(boundary);
}

}  // namespace headwise::ops
