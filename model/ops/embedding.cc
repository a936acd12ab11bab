#include "kernels/embedding/embedding.h"

#include "model/ops.h"
#include "model/ops/op_support.h"

namespace headwise::ops {

Tensor Embedding(const OpContext& ctx, absl::Span<const std::int32_t> tokens, const Tensor& table) {
  CheckMatrix(ctx, "Embedding", "table", table, ctx.master());
  const Tensor out = ctx.Empty({static_cast<std::int64_t>(tokens.size()), table.dim(1)});
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    EmbeddingForward<T>(tokens, table.Rows<Compute<T>>(), out.Rows<T>(), *ctx.pool);
  });
  return out;
}

void EmbeddingBackward(const OpContext& ctx, absl::Span<const std::int32_t> tokens,
                       const Tensor& dout, const Tensor& dtable) {
  CheckMatrix(ctx, "EmbeddingBackward", "dtable", dtable, ctx.master());
  CheckTensor(ctx, "EmbeddingBackward", "dout", dout,
              {static_cast<std::int64_t>(tokens.size()), dtable.dim(1)}, ctx.compute);
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    headwise::EmbeddingBackward<T>(tokens, dout.Rows<T>(), dtable.Rows<Compute<T>>(), *ctx.pool);
  });
}

}  // namespace headwise::ops
