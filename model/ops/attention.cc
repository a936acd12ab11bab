#include "kernels/attention/attention.h"

#include "model/ops.h"
#include "model/ops/op_support.h"

namespace headwise::ops {
namespace {

void CheckArguments(const OpContext& ctx, const char* op_name, const headwise::Attention& op,
                    absl::Span<const AttentionSegment> segments, const Qkv& qkv,
                    const Tensor& sinks, const Tensor& log_sum_exp) {
  CheckMatrix(ctx, op_name, "q", qkv.q, ctx.compute);
  CheckMatrix(ctx, op_name, "k", qkv.k, ctx.compute);
  const std::int64_t tokens = qkv.q.dim(0);
  CheckLength(op_name, "a row of q", qkv.q.dim(1), op.query_heads * op.head_dim);
  CheckLength(op_name, "a row of k", qkv.k.dim(1), op.kv_heads * op.head_dim);
  CheckTensor(ctx, op_name, "v", qkv.v, qkv.k.shape(), ctx.compute);
  if (sinks.defined()) CheckTensor(ctx, op_name, "sinks", sinks, {op.query_heads}, ctx.master());
  if (log_sum_exp.defined()) {
    CheckTensor(ctx, op_name, "log_sum_exp", log_sum_exp, {tokens, op.query_heads}, ctx.master());
  }
  // In order and without holes, so that every row of q is in exactly one segment.
  std::int64_t covered = 0;
  for (const AttentionSegment& s : segments) {
    HW_CHECK(s.query_begin == covered && s.num_queries >= 0 && s.key_begin >= 0 &&
             s.num_keys >= 0 && s.key_begin + s.num_keys <= qkv.k.dim(0))
        << op_name << ": a segment has queries from row " << s.query_begin << ", must go on at "
        << covered << "; its keys are rows [" << s.key_begin << ", " << s.key_begin + s.num_keys
        << ") of " << qkv.k.dim(0);
    covered += s.num_queries;
  }
  CheckLength(op_name, "the segments' queries", covered, tokens);
}

}  // namespace

Tensor Attention(const OpContext& ctx, const headwise::Attention& op,
                 absl::Span<const AttentionSegment> segments, const Qkv& qkv, const Tensor& sinks,
                 const Tensor& log_sum_exp) {
  CheckArguments(ctx, "Attention", op, segments, qkv, sinks, log_sum_exp);
  const Tensor o = ctx.Empty(qkv.q.shape());
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    AttentionForward<T>(op, segments, qkv.q.Rows<T>(), qkv.k.Rows<T>(), qkv.v.Rows<T>(),
                        Elements<const Compute<T>>(sinks), o.Rows<T>(),
                        RowsOrNone<Compute<T>>(log_sum_exp), *ctx.pool);
  });
  return o;
}

Qkv AttentionBackward(const OpContext& ctx, const headwise::Attention& op,
                      absl::Span<const AttentionSegment> segments, const Qkv& qkv,
                      const Tensor& sinks, const Tensor& o, const Tensor& log_sum_exp,
                      const Tensor& d_o, const Tensor& d_sinks) {
  CheckArguments(ctx, "AttentionBackward", op, segments, qkv, sinks, log_sum_exp);
  if (sinks.defined()) {
    CheckTensor(ctx, "AttentionBackward", "d_sinks", d_sinks, sinks.shape(), ctx.master());
  } else {
    CheckUndefined("AttentionBackward", "d_sinks", d_sinks);
  }
  CheckTensor(ctx, "AttentionBackward", "o", o, qkv.q.shape(), ctx.compute);
  CheckTensor(ctx, "AttentionBackward", "d_o", d_o, qkv.q.shape(), ctx.compute);
  CheckTensor(ctx, "AttentionBackward", "log_sum_exp", log_sum_exp, {o.dim(0), op.query_heads},
              ctx.master());
  const Qkv d = {
      .q = ctx.Empty(qkv.q.shape()), .k = ctx.Empty(qkv.k.shape()), .v = ctx.Empty(qkv.v.shape())};
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    headwise::AttentionBackward<T>(op, segments, qkv.q.Rows<T>(), qkv.k.Rows<T>(), qkv.v.Rows<T>(),
                                   Elements<const Compute<T>>(sinks), o.Rows<T>(),
                                   log_sum_exp.Rows<Compute<T>>(), d_o.Rows<T>(), d.q.Rows<T>(),
                                   d.k.Rows<T>(), d.v.Rows<T>(), Elements<Compute<T>>(d_sinks),
                                   *ctx.pool);
  });
  return d;
}

}  // namespace headwise::ops
