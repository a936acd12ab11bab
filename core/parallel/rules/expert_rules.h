// Layout rules of mixture-of-experts layers: routing, dispatch, the experts' linear layers and the
// combination, forward and backward. Conventions as in layer_rules.h.
//
// Rows of experts are [E R, ...]: E experts, R the rows of one of them, an estimate that assumes an
// even load. After Dispatch E is whole on every rank and R is sharded as the tokens were. With
// expert parallelism rows go through the steps of ToExperts(), which shard E over ep, and come back
// through ToTokens(); weights are S(E) on ep, typed in the expert view. With experts cut along
// their width (ep = 1) rows stay where they are.
//
// In GPT-OSS's and Muse's models a token's row at its expert depends on no other token, so E is a
// label that rows and weights share, like a batch.
#ifndef HEADWISE_CORE_PARALLEL_RULES_EXPERT_RULES_H_
#define HEADWISE_CORE_PARALLEL_RULES_EXPERT_RULES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/dtype/dtype.h"
#include "core/parallel/layout_type.h"
#include "core/parallel/step.h"

namespace headwise::rules {

struct RoutingTypes {
  LayoutType weights;  // [T, k]
  LayoutType experts;  // [T, k] integers
  Factor expert_factor;
};

// logits [T, E]; selection_bias [E] or null; chosen: k, experts of a token.
absl::StatusOr<RoutingTypes> Route(const LayoutType& logits, const LayoutType* selection_bias,
                                   std::int64_t chosen);
// dlogits [T, E] from dweights [T, k].
absl::StatusOr<LayoutType> RouteBackward(const LayoutType& logits, const RoutingTypes& routing,
                                         const LayoutType& dweights);
// Choices of each expert [E]: P where the tokens are sharded. `logits` gives the experts' factor.
absl::StatusOr<LayoutType> CountLoads(const LayoutType& logits, const RoutingTypes& routing,
                                      DType dtype);
// The auxiliary balancing loss, a scalar of the global batch: E sum_e f_e p_e, where f comes from
// the choices of all tokens (counts [E], reduced) and p from the mean of the scores.
absl::StatusOr<LayoutType> BalancingLoss(const LayoutType& logits, const LayoutType& counts);
// Its gradient added to dlogits.
absl::StatusOr<LayoutType> AddBalancingGradient(const LayoutType& logits, const LayoutType& counts,
                                                const LayoutType& dlogits);

// x [T, N] -> rows [E R, N].
absl::StatusOr<LayoutType> DispatchTokens(const RoutingTypes& routing, const LayoutType& x);
// drows [E R, N] -> dx [T, N], the copies' gradients added up.
absl::StatusOr<LayoutType> DispatchTokensBackward(const RoutingTypes& routing,
                                                  const LayoutType& drows);
// outputs [E R, N], weighted and added up -> [T, N].
absl::StatusOr<LayoutType> CombineExperts(const RoutingTypes& routing, const LayoutType& outputs);
struct ExpertGradients {
  LayoutType outputs;  // [E R, N]
  LayoutType weights;  // [T, k]
};
absl::StatusOr<ExpertGradients> CombineExpertsBackward(const RoutingTypes& routing,
                                                       const LayoutType& outputs,
                                                       const LayoutType& dy, DType weights_dtype);

// rows to the ranks of their experts, and back: reinterpret_mesh and an all_to_all over ep. The two
// tables of the exchange are inverse to each other.
absl::StatusOr<LayoutType> ToExperts(const LayoutType& rows);
absl::StatusOr<LayoutType> ToTokens(const LayoutType& rows);
// What the exchange of rows sends: for a checker's account.
std::int64_t ExchangeBytes(const LayoutType& rows);

// x [E R, K], weight [E, N, K], bias [E, N] or null -> [E R, N].
absl::StatusOr<LayoutType> ExpertLinear(const LayoutType& x, const LayoutType& weight,
                                        const LayoutType* bias);
absl::StatusOr<LayoutType> ExpertLinearBackwardInput(const LayoutType& dy,
                                                     const LayoutType& weight);
absl::StatusOr<LayoutType> ExpertLinearBackwardWeight(const LayoutType& dy, const LayoutType& x,
                                                      DType dtype);
absl::StatusOr<LayoutType> ExpertLinearBackwardBias(const LayoutType& dy, DType dtype);

}  // namespace headwise::rules

#endif  // HEADWISE_CORE_PARALLEL_RULES_EXPERT_RULES_H_
