// ExpertExchange: the way of rows to the ranks that hold their experts, and back.
//
//   ExpertExchange exchange(routing);
//   Tensor there = exchange.ToExperts(ctx, rows);            // boundary "dispatch"
//   ... ops::ExpertLinear(ctx, exchange.rows(), there, ...) ...
//   Tensor back = exchange.ToTokens(ctx, outputs);           // boundary "combine"
//
// Rows stay where they are unless the plan sends them: without sharding, and where every rank has a
// part of every expert. Then rows() are the routing's. What is sent where is agreed upon once, by
// the first exchange.
#ifndef HEADWISE_MODEL_OPS_EXPERT_EXCHANGE_H_
#define HEADWISE_MODEL_OPS_EXPERT_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/parallel/comm/row_exchange.h"
#include "core/parallel/layout_type.h"
#include "core/parallel/step.h"
#include "core/tensor/tensor.h"
#include "model/ops.h"

namespace headwise {

class ExpertExchange {
 public:
  ExpertExchange() = default;
  explicit ExpertExchange(const ops::Routing& routing);

  Tensor ToExperts(const OpContext& ctx, const Tensor& rows);
  Tensor ToTokens(const OpContext& ctx, const Tensor& rows);
  // Gradients: of what ToTokens() gave to the experts, of what ToExperts() gave to the tokens.
  Tensor ToTokensBackward(const OpContext& ctx, const Tensor& drows);
  Tensor ToExpertsBackward(const OpContext& ctx, const Tensor& drows);

  // Rows as they are after ToExperts().
  const ops::ExpertRows& rows() const { return rows_; }

 private:
  // Moves rows on real ranks.
  absl::StatusOr<Tensor> Move(const OpContext& ctx, const Step& step, const Tensor& rows);

  // On types alone: what an exchange gave, as memory of its own; with as many rows as are known,
  // where the share of the estimate is rounded up.
  static Tensor Counted(const OpContext& ctx, absl::string_view boundary, const Tensor& rows,
                        std::int64_t count);

  // A gradient that came back; unknown, and a mistake, if it is not that of `value`.
  static Tensor GradientOf(const OpContext& ctx, const Tensor& gradient, const LayoutType& value);

  LayoutType sent_, returned_;        // what ToExperts() and ToTokens() were given
  std::int64_t token_rows_ = 0;       // with their tokens
  std::vector<std::int64_t> counts_;  // of them, those of each expert
  ops::ExpertRows rows_;
  std::shared_ptr<RowExchange> exchange_;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_OPS_EXPERT_EXCHANGE_H_
