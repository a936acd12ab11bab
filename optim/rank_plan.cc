#include "optim/rank_plan.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace headwise {

absl::StatusOr<OptimizerPlan> PlanOptimizer(absl::Span<const Parameter* const> parameters,
                                            Granularity granularity, std::int64_t head_group_size,
                                            std::int64_t rank) {
  OptimizerPlan plan;
  std::vector<Parameter> wholes;
  wholes.reserve(parameters.size());
  for (const Parameter* p : parameters) {
    HW_CHECK(p != nullptr);
    if (!p->value.defined()) {  // which AssignGroups() refuses
      wholes.push_back(*p);
      continue;
    }
    HW_ASSIGN_OR_RETURN(ParameterShare share, ParameterShare::Create(*p, rank));
    if (share.layout().defined()) {
      if (!plan.mesh.has_value()) plan.mesh = share.mesh();
      if (!(share.mesh() == *plan.mesh)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "parameter ", p->name, ": its layout ", share.layout().ToString(), " is on the mesh ",
            share.mesh().ToString(), ", those before it on ", plan.mesh->ToString()));
      }
    }
    if (p->role == ParameterRole::kBalancingBias && !share.Axes().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", p->name, ": ", share.layout().ToString(),
                       " is cut, and balancing compares the loads of all experts; let it be R or "
                       "I on every axis"));
    }
    HW_ASSIGN_OR_RETURN(Parameter whole, share.Whole(*p));
    wholes.push_back(std::move(whole));
    plan.shares.push_back(std::move(share));
  }
  std::vector<const Parameter*> views;
  for (const Parameter& whole : wholes) views.push_back(&whole);
  HW_ASSIGN_OR_RETURN(plan.grouped, AssignGroups(views, granularity, head_group_size));

  std::vector<BlockedParameter> blocked;
  for (std::size_t i = 0; i < plan.grouped.size(); ++i) {
    if (!plan.grouped[i].blocks.has_value()) continue;
    plan.muon.push_back(i);
    blocked.push_back({.name = plan.grouped[i].assignment.name,
                       .share = &plan.shares[i],
                       .blocks = &*plan.grouped[i].blocks});
  }
  plan.cut = PlanCutBlocks(blocked, rank);
  return plan;
}

}  // namespace headwise
