// ZeRO as a plan: which gradients a data-parallel axis can cut instead of replicating, so that a
// rank keeps the optimizer's state of a share only. On types alone; nothing runs by it.
//
//   HW_ASSIGN_OR_RETURN(const ZeroPlan zero, PlanZero({{"layers.0.ffn.w1", type}}, "dp"));
//   for (const ZeroParameter& p : zero.parameters) plan.Apply(p.reduction);
//   // reduction layers.0.ffn.w1: reduce_scatter@dp -> S(0)
//
// The reduction of a gradient that is P on the axis ends in reduce_scatter over it, on the first
// factor of dimension 0 that is not yet fully sharded; state is of that share, and the new weights
// are gathered with all_gather after the step. Where the axis does not divide that factor, or what
// is left must stay whole (head_dim, the concatenation of a kv group's heads), it stays an
// all_reduce: heads are never cut. Reductions over other axes come first and stay as they are.
//
// A matrix that Muon orthogonalises whole is cut by this too; what has to be brought together then
// is AccountOptimizer()'s to say, of parameters of the type `state` (optimizer_communication.h).
// Rajbhandari et al., "ZeRO" (2020).
#ifndef HEADWISE_OPTIM_ZERO_PLAN_H_
#define HEADWISE_OPTIM_ZERO_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/parallel/layout_plan.h"
#include "core/parallel/layout_type.h"

namespace headwise {

struct ParameterType {
  std::string name;
  LayoutType type;  // of the value
};

struct ZeroParameter {
  std::string name;
  PlanEntry reduction;  // of its gradient: an edit of a LayoutPlan
  LayoutType state;     // of the reduced gradient, and of the optimizer's state
  bool cut = false;     // whether the axis cuts it
  std::string reason;   // why not, if it does not
  // By each rank, in a step.
  std::int64_t reduction_bytes = 0;  // all steps of the reduction
  std::int64_t gather_bytes = 0;     // the new weights
  // Of the gradient's share: what state is a multiple of. Before and with the plan.
  std::int64_t replicated_elements = 0, elements = 0;
};

struct ZeroPlan {
  std::vector<ZeroParameter> parameters;  // in the order given

  // One line per parameter, then the sums.
  std::string ToString() const;
};

// kNotFound: no view of the mesh has the axis. An axis of one view leaves parameters of the other
// as they are ("dp" is dense, "edp" of experts). kFailedPrecondition: a value that is V or P.
absl::StatusOr<ZeroPlan> PlanZero(absl::Span<const ParameterType> parameters,
                                  absl::string_view axis);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ZERO_PLAN_H_
