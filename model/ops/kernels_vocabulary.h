// Embedding and cross-entropy by the chosen implementation (model/ops/kernels.h). Arguments and
// formulas: kernels/embedding/embedding.h, kernels/cross_entropy/cross_entropy.h. A token or target
// outside of the vocabulary fails an HW_CHECK with its index, on a GPU it is a fault.
#ifndef HEADWISE_MODEL_OPS_KERNELS_VOCABULARY_H_
#define HEADWISE_MODEL_OPS_KERNELS_VOCABULARY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "core/tensor/tensor.h"
#include "kernels/common/vocabulary_shard.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/cuda.h"
#include "kernels/embedding/cuda.h"
#include "kernels/embedding/embedding.h"
#include "model/ops.h"
#include "model/ops/kernels.h"

namespace headwise::ops::kernels {

template <typename T>
void EmbeddingForward(const OpContext& ctx, absl::Span<const std::int32_t> tokens,
                      RowSpan<const Compute<T>> table, RowSpan<T> out, VocabularyShard shard) {
  FirstBadIndex bad(ctx, Fault::kToken);
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.EmbeddingForward(tokens, table, out, bad.get(), Stream(ctx), shard);
      },
      [&] { headwise::EmbeddingForward<T>(tokens, table, out, *ctx.pool, shard); });
  bad.Check();
}

template <typename T>
void EmbeddingBackward(const OpContext& ctx, absl::Span<const std::int32_t> tokens,
                       RowSpan<const T> dout, RowSpan<Compute<T>> dtable, VocabularyShard shard) {
  FirstBadIndex bad(ctx, Fault::kToken);
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        const auto count = static_cast<std::int64_t>(tokens.size());
        const Tensor scratch =
            Scratch(ctx, EmbeddingBackwardScratch(count, dtable.rows), DType::kI32);
        return of.EmbeddingBackward(tokens, dout, dtable, scratch.data<std::int32_t>(), bad.get(),
                                    Stream(ctx), shard);
      },
      [&] { headwise::EmbeddingBackward<T>(tokens, dout, dtable, *ctx.pool, shard); });
  bad.Check();
}

// *loss_scale in the memory of the logits: on a GPU, in its.
template <typename T>
void CrossEntropy(const OpContext& ctx, const LogitTransform& op, RowSpan<const Compute<T>> z,
                  absl::Span<const std::int32_t> targets, const double* loss_scale,
                  absl::Span<Compute<T>> losses, RowSpan<T> dz) {
  FirstBadIndex bad(ctx, Fault::kTarget);
  Choose<T>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>& of) {
        return of.CrossEntropy(op, z, targets, loss_scale, losses, dz, bad.get(), Stream(ctx));
      },
      [&] { headwise::CrossEntropy<T>(op, z, targets, *loss_scale, losses, dz, *ctx.pool); });
  bad.Check();
}

inline void TransformLogits(const OpContext& ctx, const LogitTransform& op, RowSpan<const float> z,
                            RowSpan<float> logits) {
  Choose<float>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>&) {
        return ctx.launchers->TransformLogits(op, z, logits, Stream(ctx));
      },
      [&] { headwise::TransformLogits(op, z, logits, *ctx.pool); });
}

// *sum in the memory of the losses: on a GPU, in its.
inline void SumLosses(const OpContext& ctx, absl::Span<const float> losses, double* sum) {
  Choose<float>(
      ctx,
      [&]<typename U>(const StorageLaunchers<U>&) {
        return ctx.launchers->SumLosses(losses, sum, Stream(ctx));
      },
      [&] { *sum = headwise::SumLosses(losses); });
}

}  // namespace headwise::ops::kernels

#endif  // HEADWISE_MODEL_OPS_KERNELS_VOCABULARY_H_
