#include <algorithm>
#include <type_traits>

#include "core/base/status_macros.h"
#include "core/parallel/rules/layer_rules.h"
#include "core/parallel/rules/loss_rules.h"
#include "core/parallel/tensor_layout.h"
#include "kernels/common/reductions.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "model/ops.h"
#include "model/ops/kernels_linear.h"
#include "model/ops/kernels_vocabulary.h"
#include "model/ops/op_support.h"
#include "model/ops/vocabulary_loss.h"

namespace headwise::ops {
namespace {

// z is made for this many of its elements at a time, so that a large vocabulary does not need T x V
// of them at once. Part of the results' bits through the sums over tokens and, with oneDNN, the
// shape of the product: never a function of the machine.
constexpr std::int64_t kChunkElements = std::int64_t{1} << 22;

std::int64_t ChunkTokens(std::int64_t vocab_size) {
  return std::max<std::int64_t>(64,
                                kChunkElements / std::max<std::int64_t>(vocab_size, 1) / 64 * 64);
}

struct LossLayouts {
  LayoutType z, losses, dz;
};

absl::StatusOr<LossLayouts> LossRule(const OpContext& ctx, const LayoutType& x,
                                     const LayoutType& weight, const LayoutType& targets,
                                     const LayoutType& scale) {
  LossLayouts out;
  HW_ASSIGN_OR_RETURN(out.z, rules::Linear(x, weight, nullptr, ctx.master()));
  HW_ASSIGN_OR_RETURN(out.losses, rules::CrossEntropy(out.z, targets, ctx.master()));
  // What is differentiated is the scaled sum of the losses.
  HW_ASSIGN_OR_RETURN(const LayoutType sum, rules::SumLosses(out.losses));
  HW_ASSIGN_OR_RETURN(const LayoutType loss, rules::Scale(sum, scale));
  HW_RETURN_IF_ERROR(rules::CheckLoss(loss));
  HW_ASSIGN_OR_RETURN(out.dz, rules::CrossEntropyBackward(out.z, targets, &scale, ctx.compute));
  return out;
}

}  // namespace

HeadLoss LinearCrossEntropy(const OpContext& ctx, const LogitTransform& op, const Tensor& x,
                            const Tensor& weight, const TokenIds& targets, const LossScale& scale,
                            bool backward) {
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& x, const LayoutType& weight, const LayoutType& targets,
          const LayoutType& scale) { return LossRule(ctx, x, weight, targets, scale); },
      x, weight, targets.layout, scale.layout);
  if (!layout.known || !OfBatch(ctx, "LinearCrossEntropy", "targets",
                                static_cast<std::int64_t>(targets.ids.size()), x.dim(0))) {
    return {.losses = Unknown(ctx), .dz = backward ? Unknown(ctx) : Tensor()};
  }
  CheckMatrix(ctx, "LinearCrossEntropy", "x", x, ctx.compute);
  CheckMatrix(ctx, "LinearCrossEntropy", "weight", weight, ctx.compute);
  CheckLength("LinearCrossEntropy", "a row of weight", weight.dim(1), x.dim(1));
  const std::int64_t tokens = x.dim(0), vocab_size = weight.dim(0);
  HeadLoss out = {.losses = Result(ctx, {tokens}, ctx.master(), layout.value.losses)};
  if (backward) out.dz = Result(ctx, {tokens, vocab_size}, ctx.compute, layout.value.dz);

  VocabularyLoss shards(ctx, layout.value.z);
  const std::int64_t chunk = std::min(tokens, ChunkTokens(vocab_size));
  const Tensor z_chunk = ctx.Empty({chunk, vocab_size}, ctx.master());
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t count = std::min(chunk, tokens - begin);
    const Tensor rows = x.Slice(begin, count), z = z_chunk.Slice(0, count);
    const Tensor losses = out.losses.Slice(begin, count);
    const Tensor dz = backward ? out.dz.Slice(begin, count) : Tensor();
    const absl::Span<const std::int32_t> ids = targets.ids.subspan(begin, count);
    Dispatch(ctx, [&]<typename T>(StorageType<T>) {
      kernels::LinearForward<T, Compute<T>>(ctx, rows.Rows<T>(), weight.Rows<T>(), {},
                                            z.Rows<Compute<T>>());
    });
    shards.Run(op, z, ids, scale.value, losses, dz);
  }
  return out;
}

void SumLosses(const OpContext& ctx, const Tensor& losses, double* sum) {
  if (ctx.device != Device::kCuda) *sum = 0;
  const auto layout = Derive(ctx, rules::SumLosses, losses);
  if (!layout.known) return;
  CheckTensor(ctx, "SumLosses", "losses", losses, {losses.size()}, ctx.master());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    if constexpr (std::is_same_v<T, double>) {
      AdjacentPairAccumulator<double> tree;  // the kernel's order
      for (const double loss : Elements<const double>(losses)) tree.Add(loss);
      *sum = tree.Total();
    } else {
      kernels::SumLosses(ctx, Elements<const float>(losses), sum);
    }
  });
}

void TransformLogitsInPlace(const OpContext& ctx, const LogitTransform& op, const Tensor& z) {
  CheckMatrix(ctx, "TransformLogitsInPlace", "z", z, DType::kF32);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::TransformLogits(ctx, op, z.Rows<float>(), z.Rows<float>());
  });
}

}  // namespace headwise::ops
