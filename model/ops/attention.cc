#include "core/base/status_macros.h"
#include "core/parallel/rules/attention_rules.h"
#include "model/ops.h"
#include "model/ops/kernels_attention.h"
#include "model/ops/op_support.h"

namespace headwise::ops {
namespace {

// Whether the segments are of q's rows. On a GPU only its kernels can look at them.
bool SegmentsOfBatch(const OpContext& ctx, const char* op,
                     absl::Span<const AttentionSegment> segments, const Tensor& q) {
  if (ctx.device == Device::kCuda) return true;
  std::int64_t queries = 0;
  for (const AttentionSegment& segment : segments) queries += segment.num_queries;
  return OfBatch(ctx, op, "the segments' queries", queries, q.dim(0));
}

void CheckArguments(const OpContext& ctx, const char* op_name, const headwise::Attention& op,
                    absl::Span<const AttentionSegment> segments, const Qkv& qkv,
                    const Tensor& sinks) {
  CheckMatrix(ctx, op_name, "q", qkv.q, ctx.compute);
  CheckMatrix(ctx, op_name, "k", qkv.k, ctx.compute);
  CheckLength(op_name, "a row of q", qkv.q.dim(1), op.query_heads * op.head_dim);
  CheckLength(op_name, "a row of k", qkv.k.dim(1), op.kv_heads * op.head_dim);
  CheckTensor(ctx, op_name, "v", qkv.v, qkv.k.shape(), ctx.compute);
  if (sinks.defined()) CheckTensor(ctx, op_name, "sinks", sinks, {op.query_heads}, ctx.master());
  if (ctx.device != Device::kCuda) {
    CheckSegments(op_name, segments, qkv.q.dim(0), qkv.k.dim(0));
  }
}

}  // namespace

void CheckSegments(const char* op, absl::Span<const AttentionSegment> segments,
                   std::int64_t queries, std::int64_t keys) {
  std::int64_t covered = 0;
  for (const AttentionSegment& s : segments) {
    HW_CHECK(s.query_begin == covered && s.num_queries >= 0 && s.key_begin >= 0 &&
             s.num_keys >= 0 && s.key_begin + s.num_keys <= keys)
        << op << ": a segment has queries from row " << s.query_begin << ", must go on at "
        << covered << "; its keys are rows [" << s.key_begin << ", " << s.key_begin + s.num_keys
        << ") of " << keys;
    covered += s.num_queries;
  }
  CheckLength(op, "the segments' queries", covered, queries);
}

AttentionOutput Attention(const OpContext& ctx, const headwise::Attention& op,
                          absl::Span<const AttentionSegment> segments, const Qkv& qkv,
                          const Tensor& sinks, bool keep_statistics) {
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& q, const LayoutType& k, const LayoutType& v,
          const LayoutType& sinks) -> absl::StatusOr<rules::AttentionTypes> {
        HW_RETURN_IF_ERROR(rules::CheckMask(ctx.sharding->inputs().tokens, q));
        return rules::Attention({q, k, v}, OrNull(sinks), ctx.master());
      },
      qkv.q, qkv.k, qkv.v, sinks);
  if (!layout.known || !SegmentsOfBatch(ctx, "Attention", segments, qkv.q)) {
    return {.o = Unknown(ctx), .log_sum_exp = Unknown(ctx)};
  }
  CheckArguments(ctx, "Attention", op, segments, qkv, sinks);
  AttentionOutput out = {.o = Result(ctx, qkv.q.shape(), ctx.compute, layout.value.o)};
  if (keep_statistics) {
    out.log_sum_exp =
        Result(ctx, {qkv.q.dim(0), op.query_heads}, ctx.master(), layout.value.log_sum_exp);
  }
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::AttentionForward<T>(ctx, op, segments, qkv.q.Rows<T>(), qkv.k.Rows<T>(),
                                 qkv.v.Rows<T>(), Elements<const Compute<T>>(sinks),
                                 out.o.Rows<T>(), RowsOrNone<Compute<T>>(out.log_sum_exp));
  });
  return out;
}

Qkv AttentionBackward(const OpContext& ctx, const headwise::Attention& op,
                      absl::Span<const AttentionSegment> segments, const Qkv& qkv,
                      const Tensor& sinks, const AttentionOutput& saved, const Tensor& d_o,
                      Tensor* d_sinks) {
  const auto layout = Derive(
      ctx,
      [&](const LayoutType& q, const LayoutType& k, const LayoutType& v, const LayoutType& sinks,
          const LayoutType& o, const LayoutType& log_sum_exp, const LayoutType& d_o) {
        return rules::AttentionBackward({q, k, v}, OrNull(sinks), {o, log_sum_exp}, d_o);
      },
      qkv.q, qkv.k, qkv.v, sinks, saved.o, saved.log_sum_exp, d_o);
  if (!layout.known || !SegmentsOfBatch(ctx, "AttentionBackward", segments, qkv.q)) {
    if (d_sinks != nullptr) Forget(ctx, *d_sinks);
    return {.q = Unknown(ctx), .k = Unknown(ctx), .v = Unknown(ctx)};
  }
  CheckArguments(ctx, "AttentionBackward", op, segments, qkv, sinks);
  HW_CHECK_EQ(sinks.defined(), d_sinks != nullptr) << "AttentionBackward: d_sinks";
  if (sinks.defined()) {
    CheckTensor(ctx, "AttentionBackward", "d_sinks", *d_sinks, sinks.shape(), ctx.master());
  }
  CheckTensor(ctx, "AttentionBackward", "o", saved.o, qkv.q.shape(), ctx.compute);
  CheckTensor(ctx, "AttentionBackward", "d_o", d_o, qkv.q.shape(), ctx.compute);
  CheckTensor(ctx, "AttentionBackward", "log_sum_exp", saved.log_sum_exp,
              {saved.o.dim(0), op.query_heads}, ctx.master());
  const rules::QkvTypes& types = layout.value.qkv;
  const Qkv d = {.q = Result(ctx, qkv.q.shape(), ctx.compute, types.q),
                 .k = Result(ctx, qkv.k.shape(), ctx.compute, types.k),
                 .v = Result(ctx, qkv.v.shape(), ctx.compute, types.v)};
  // Keys of other ranks' queries alone.
  if (ctx.sharding != nullptr && ctx.device != Device::kMeta) {
    for (const Tensor* gradient : {&d.k, &d.v}) {
      kernels::ClearBytes(ctx, gradient->raw_data(), gradient->bytes());
    }
  }
  Dispatch(ctx, [&]<typename T>(StorageType<T>) {
    kernels::AttentionBackward<T>(ctx, op, segments, qkv.q.Rows<T>(), qkv.k.Rows<T>(),
                                  qkv.v.Rows<T>(), Elements<const Compute<T>>(sinks),
                                  saved.o.Rows<T>(), saved.log_sum_exp.Rows<Compute<T>>(),
                                  d_o.Rows<T>(), d.q.Rows<T>(), d.k.Rows<T>(), d.v.Rows<T>(),
                                  Elements<Compute<T>>(d_sinks == nullptr ? Tensor() : *d_sinks));
  });
  if (d_sinks != nullptr) *d_sinks = Overwritten(ctx, *d_sinks, layout.value.sinks);
  return d;
}

}  // namespace headwise::ops
