#include "model/ops/expert_exchange.h"

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/parallel/op_rules.h"
#include "core/parallel/tensor_layout.h"

namespace headwise {

ExpertExchange::ExpertExchange(const ops::Routing& routing)
    : token_rows_(routing.groups.rows()), rows_(ops::RowsOf(routing)) {
  for (std::size_t e = 0; e + 1 < rows_.offsets.size(); ++e) {
    counts_.push_back(rows_.offsets[e + 1] - rows_.offsets[e]);
  }
}

absl::StatusOr<Tensor> ExpertExchange::Move(const OpContext& ctx, const Step& step,
                                            const Tensor& rows) {
  if (exchange_ == nullptr) {
    const MeshRanks& ranks = *ctx.sharding->ranks();
    HW_ASSIGN_OR_RETURN(const std::vector<int> axes,
                        ranks.mesh().Find(MeshView::kExpert, step.axis));
    HW_CHECK_EQ(axes.size(), 1) << step.ToString();
    HW_ASSIGN_OR_RETURN(RowExchange exchange,
                        RowExchange::Create(ranks.Axis(MeshView::kExpert, axes[0]), counts_));
    exchange_ = std::make_shared<RowExchange>(std::move(exchange));
  }
  const bool to_experts = step.dim == 0;
  std::int64_t sent = 0;
  for (const std::int64_t count : counts_) sent += count;
  const Tensor out =
      ctx.Empty({to_experts ? exchange_->received_rows() : sent, rows.dim(1)}, rows.dtype());
  HW_RETURN_IF_ERROR(to_experts ? exchange_->ToExperts(rows, out) : exchange_->ToTokens(rows, out));
  return out;
}

Tensor ExpertExchange::Counted(const OpContext& ctx, absl::string_view boundary, const Tensor& rows,
                               std::int64_t count) {
  if (ctx.device != Device::kMeta || !LayoutOf(rows).defined()) return rows;
  if (rows.dim(0) == count && !ctx.sharding->Communicates(boundary)) return rows;
  return TensorLayout::Attach(ctx.Empty({count, rows.dim(1)}, rows.dtype()), LayoutOf(rows));
}

Tensor ExpertExchange::GradientOf(const OpContext& ctx, const Tensor& gradient,
                                  const LayoutType& value) {
  LayoutChecker& checker = ctx.sharding->checker();
  const absl::Status dual = CheckDual(LayoutOf(gradient), value);
  if (dual.ok() || checker.relaxed()) return gradient;
  checker.Note(dual);
  return UnknownTensor(ctx.device);
}

Tensor ExpertExchange::ToExperts(const OpContext& ctx, const Tensor& rows) {
  if (ctx.sharding == nullptr) return rows;
  sent_ = LayoutOf(rows);
  const Tensor received = ctx.sharding->CrossRows(
      "dispatch", rows, [&](const Step& step, const Tensor& x) { return Move(ctx, step, x); });
  const Tensor there = Counted(ctx, "dispatch", received, received.dim(0));
  if (exchange_ != nullptr) {
    rows_.offsets.assign(1, 0);
    for (const std::int64_t count : exchange_->received()) {
      rows_.offsets.push_back(rows_.offsets.back() + count);
    }
    rows_.count = exchange_->received_rows();
  } else if (const LayoutType layout = LayoutOf(there); layout.defined()) {
    // On types alone: as many experts as this rank has, and an estimate of their rows.
    const LayoutType by_expert = SplitDim(layout, 0, {"E"});
    const std::int64_t experts = by_expert.LocalShape(ctx.sharding->rank())[0];
    if (ctx.device == Device::kMeta) {
      rows_.offsets.assign(static_cast<std::size_t>(experts) + 1, 0);
      rows_.count = there.dim(0);
    }
  }
  return there;
}

Tensor ExpertExchange::ToTokens(const OpContext& ctx, const Tensor& rows) {
  if (ctx.sharding == nullptr) return rows;
  returned_ = LayoutOf(rows);
  const Tensor back = ctx.sharding->CrossRows(
      "combine", rows, [&](const Step& step, const Tensor& x) { return Move(ctx, step, x); });
  return Counted(ctx, "combine", back, token_rows_);
}

Tensor ExpertExchange::ToTokensBackward(const OpContext& ctx, const Tensor& drows) {
  if (ctx.sharding == nullptr) return drows;
  const Tensor there = ctx.sharding->CrossRowsBackward(
      "combine", drows, [&](const Step& step, const Tensor& x) { return Move(ctx, step, x); });
  return Counted(ctx, "combine", GradientOf(ctx, there, returned_), rows_.count);
}

Tensor ExpertExchange::ToExpertsBackward(const OpContext& ctx, const Tensor& drows) {
  if (ctx.sharding == nullptr) return drows;
  const Tensor back = ctx.sharding->CrossRowsBackward(
      "dispatch", drows, [&](const Step& step, const Tensor& x) { return Move(ctx, step, x); });
  return Counted(ctx, "dispatch", GradientOf(ctx, back, sent_), token_rows_);
}

}  // namespace headwise
