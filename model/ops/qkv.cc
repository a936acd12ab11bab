#include "core/parallel/rules/attention_rules.h"
#include "kernels/prepare_qkv/cuda_unfused.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "model/ops.h"
#include "model/ops/kernels_qkv.h"
#include "model/ops/op_support.h"

namespace headwise::ops {
namespace {

void CheckArguments(const OpContext& ctx, const char* op_name, const QkvArguments& arguments,
                    const Tensor& packed) {
  const PackedQkv& layout = arguments.op.layout;
  CheckMatrix(ctx, op_name, "packed", packed, ctx.compute);
  CheckLength(op_name, "a row of packed", packed.dim(1), layout.row_width());
  const HeadNorm norm = arguments.op.norm;
  for (const Tensor* weight : {&arguments.q_weight, &arguments.k_weight}) {
    if (norm == HeadNorm::kWeighted || norm == HeadNorm::kGainCentered) {
      CheckTensor(ctx, op_name, "weight", *weight, {layout.head_dim()}, ctx.master());
    } else {
      CheckUndefined(op_name, "weight", *weight);
    }
  }
}

// Whether the positions are of the tokens.
bool PositionsOfBatch(const OpContext& ctx, const char* op, const QkvArguments& arguments,
                      const Tensor& packed) {
  return arguments.op.rotary == nullptr ||
         OfBatch(ctx, op, "positions", static_cast<std::int64_t>(arguments.positions.values.size()),
                 packed.dim(0));
}

template <typename T>
QkvInputs<T> Inputs(const QkvArguments& arguments, const Tensor& packed) {
  return {.packed = packed.Rows<T>(),
          .q_weight = Elements<const Compute<T>>(arguments.q_weight),
          .k_weight = Elements<const Compute<T>>(arguments.k_weight),
          .positions = arguments.positions.values};
}

template <typename T>
RowSpan<T> RowsOf(const Tensor* tensor) {
  return tensor == nullptr ? RowSpan<T>() : tensor->Rows<T>();
}

LayoutArgument PositionsOf(const QkvArguments& arguments) {
  if (arguments.op.rotary == nullptr) return {.present = false};
  return {.layout = arguments.positions.layout};
}

// On kMeta: counts the tensors between separate kernels among the pass's memory.
void CountUnfused(const OpContext& ctx, const QkvArguments& arguments, std::int64_t tokens) {
  if (ctx.device != Device::kMeta || !arguments.unfused) return;
  ctx.Empty({UnfusedElements(arguments.op, tokens)});
}

// What the rules need, of operands that live as long as their layouts.
rules::QkvOperands Operands(const QkvArguments& arguments, const LayoutType& q_weight,
                            const LayoutType& k_weight, const LayoutType& positions) {
  return {.q_weight = OrNull(q_weight),
          .k_weight = OrNull(k_weight),
          .positions = OrNull(positions),
          .norm = arguments.op.norm != HeadNorm::kNone};
}

}  // namespace

Qkv PrepareQkv(const OpContext& ctx, const QkvArguments& arguments, const Tensor& packed) {
  const auto types = Derive(
      ctx,
      [&](const LayoutType& q_weight, const LayoutType& k_weight, const LayoutType& positions,
          const LayoutType& packed) {
        return rules::PrepareQkv(Operands(arguments, q_weight, k_weight, positions), packed);
      },
      arguments.q_weight, arguments.k_weight, PositionsOf(arguments), packed);
  if (!types.known || !PositionsOfBatch(ctx, "PrepareQkv", arguments, packed)) {
    return {.q = Unknown(ctx), .k = Unknown(ctx), .v = Unknown(ctx)};
  }
  CheckArguments(ctx, "PrepareQkv", arguments, packed);
  const PackedQkv& layout = arguments.op.layout;
  const std::int64_t tokens = packed.dim(0);
  const Shape q_shape = {tokens, layout.query_heads() * layout.head_dim()};
  const Shape kv_shape = {tokens, layout.kv_heads() * layout.head_dim()};
  Qkv out = {.q = Result(ctx, q_shape, ctx.compute, types.value.q),
             .k = Result(ctx, kv_shape, ctx.compute, types.value.k),
             .v = Result(ctx, kv_shape, ctx.compute, types.value.v)};
  CountUnfused(ctx, arguments, tokens);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    const QkvInputs<T> in = Inputs<T>(arguments, packed);
    const QkvOutputs<T> outputs = {out.q.Rows<T>(), out.k.Rows<T>(), out.v.Rows<T>()};
    if (arguments.unfused) {
      kernels::PrepareQkvUnfused<T>(ctx, arguments.op, in, outputs);
    } else {
      kernels::PrepareQkv<T>(ctx, arguments.op, in, outputs);
    }
  });
  return out;
}

Tensor PrepareQkvBackward(const OpContext& ctx, const QkvArguments& arguments, const Tensor& packed,
                          const Qkv& gradients, Tensor* dq_weight, Tensor* dk_weight) {
  const auto types = Derive(
      ctx,
      [&](const LayoutType& q_weight, const LayoutType& k_weight, const LayoutType& positions,
          const LayoutType& packed, const LayoutType& dq, const LayoutType& dk,
          const LayoutType& dv) {
        return rules::PrepareQkvBackward(Operands(arguments, q_weight, k_weight, positions), packed,
                                         {.q = dq, .k = dk, .v = dv}, ctx.master());
      },
      arguments.q_weight, arguments.k_weight, PositionsOf(arguments), packed, gradients.q,
      gradients.k, gradients.v);
  if (!types.known || !PositionsOfBatch(ctx, "PrepareQkvBackward", arguments, packed)) {
    for (Tensor* dweight : {dq_weight, dk_weight}) {
      if (dweight != nullptr) Forget(ctx, *dweight);
    }
    return Unknown(ctx);
  }
  CheckArguments(ctx, "PrepareQkvBackward", arguments, packed);
  const PackedQkv& layout = arguments.op.layout;
  const std::int64_t tokens = packed.dim(0);
  const Shape q_shape = {tokens, layout.query_heads() * layout.head_dim()};
  const Shape kv_shape = {tokens, layout.kv_heads() * layout.head_dim()};
  CheckTensor(ctx, "PrepareQkvBackward", "dq", gradients.q, q_shape, ctx.compute);
  CheckTensor(ctx, "PrepareQkvBackward", "dk", gradients.k, kv_shape, ctx.compute);
  CheckTensor(ctx, "PrepareQkvBackward", "dv", gradients.v, kv_shape, ctx.compute);
  for (const Tensor* dweight : {dq_weight, dk_weight}) {
    HW_CHECK_EQ(arguments.q_weight.defined(), dweight != nullptr) << "PrepareQkvBackward: dweight";
    if (dweight == nullptr) continue;
    CheckTensor(ctx, "PrepareQkvBackward", "dweight", *dweight,
                {layout.kv_heads(), layout.head_dim()}, ctx.master());
  }
  const Tensor dpacked = Result(ctx, packed.shape(), ctx.compute, types.value.packed);
  CountUnfused(ctx, arguments, tokens);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    const QkvInputs<T> in = Inputs<T>(arguments, packed);
    const QkvGradients<T> dqkv = {gradients.q.Rows<T>(), gradients.k.Rows<T>(),
                                  gradients.v.Rows<T>()};
    const PackedGradients<T> out = {.dpacked = dpacked.Rows<T>(),
                                    .dq_weight_per_group = RowsOf<Compute<T>>(dq_weight),
                                    .dk_weight_per_group = RowsOf<Compute<T>>(dk_weight)};
    if (arguments.unfused) {
      kernels::PrepareQkvBackwardUnfused<T>(ctx, arguments.op, in, dqkv, out);
    } else {
      kernels::PrepareQkvBackward<T>(ctx, arguments.op, in, dqkv, out);
    }
  });
  if (dq_weight != nullptr) {
    *dq_weight = Overwritten(ctx, *dq_weight, types.value.q_weight);
    *dk_weight = Overwritten(ctx, *dk_weight, types.value.k_weight);
  }
  return dpacked;
}

void ReduceHeadNormGradient(const OpContext& ctx, const Tensor& per_group, Tensor& out) {
  const auto layout = Derive(ctx, rules::ReduceHeadNormGradient, per_group);
  if (!layout.known) return Forget(ctx, out);
  CheckMatrix(ctx, "ReduceHeadNormGradient", "per_group", per_group, ctx.master());
  CheckTensor(ctx, "ReduceHeadNormGradient", "out", out, {per_group.dim(1)}, ctx.master());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    using C = Compute<T>;
    kernels::ReduceHeadNormGradient<C>(ctx, per_group.Rows<C>(), Elements<C>(out));
  });
  out = Overwritten(ctx, out, layout.value);
}

}  // namespace headwise::ops
