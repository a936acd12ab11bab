#include "core/parallel/rules/layer_rules.h"
#include "core/parallel/tensor_layout.h"
#include "model/ops.h"
#include "model/ops/kernels_vocabulary.h"
#include "model/ops/op_support.h"

namespace headwise::ops {
namespace {

// The rows of the vocabulary that a table holds.
VocabularyShard ShardOf(const OpContext& ctx, const Tensor& table) {
  if (ctx.sharding == nullptr) return {};
  const LayoutType layout = LayoutOf(table);
  return {.begin = ShareBegin(layout, 0, ctx.sharding->rank()),
          .vocabulary = layout.GlobalShape()[0]};
}

}  // namespace

Tensor Embedding(const OpContext& ctx, const TokenIds& tokens, const Tensor& table) {
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& tokens, const LayoutType& table) {
        return rules::Embedding(tokens, table, ctx.compute);
      },
      tokens.layout, table);
  if (!layout.known) return Unknown(ctx);
  CheckMatrix(ctx, "Embedding", "table", table, ctx.master());
  const Tensor out = Result(ctx, {static_cast<std::int64_t>(tokens.ids.size()), table.dim(1)},
                            ctx.compute, layout.value);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::EmbeddingForward<T>(ctx, tokens.ids, table.Rows<Compute<T>>(), out.Rows<T>(),
                                 ShardOf(ctx, table));
  });
  return out;
}

void EmbeddingBackward(const OpContext& ctx, const TokenIds& tokens, const Tensor& table,
                       const Tensor& dout, Tensor& dtable) {
  const auto layout = Derive(ctx, rules::EmbeddingBackward, tokens.layout, table, dout);
  if (!layout.known || !OfShare(ctx, "EmbeddingBackward", dtable, layout.value)) {
    return Forget(ctx, dtable);
  }
  CheckMatrix(ctx, "EmbeddingBackward", "dtable", dtable, ctx.master());
  CheckTensor(ctx, "EmbeddingBackward", "table", table, dtable.shape(), ctx.master());
  CheckTensor(ctx, "EmbeddingBackward", "dout", dout,
              {static_cast<std::int64_t>(tokens.ids.size()), dtable.dim(1)}, ctx.compute);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::EmbeddingBackward<T>(ctx, tokens.ids, dout.Rows<T>(), dtable.Rows<Compute<T>>(),
                                  ShardOf(ctx, table));
  });
  dtable = Overwritten(ctx, dtable, layout.value);
}

}  // namespace headwise::ops
