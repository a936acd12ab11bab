// OptimizerPlan: what the optimizer makes of a model's parameters on one rank, before it touches an
// element: where each share lies, each parameter's group as of the whole model, and who does what
// with Muon's blocks. Works on Device::kMeta.
#ifndef HEADWISE_OPTIM_RANK_PLAN_H_
#define HEADWISE_OPTIM_RANK_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/heads/head_blocks.h"
#include "core/parallel/mesh.h"
#include "optim/cut_blocks.h"
#include "optim/groups.h"
#include "optim/parameter.h"
#include "optim/parameter_share.h"

namespace headwise {

struct OptimizerPlan {
  std::vector<ParameterShare> shares;     // by parameter
  std::vector<GroupedParameter> grouped;  // by parameter: of the whole, the same on every rank
  std::vector<std::size_t> muon;          // parameters that are Muon's
  CutPlan cut;                            // by the position in `muon`
  std::optional<Mesh> mesh;               // of the layouts; absent if no parameter has one
};

// kInvalidArgument: as AssignGroups() and ParameterShare::Create(); layouts on different meshes; a
// balancing bias that is cut, whose update needs the loads of all experts.
absl::StatusOr<OptimizerPlan> PlanOptimizer(absl::Span<const Parameter* const> parameters,
                                            Granularity granularity, std::int64_t head_group_size,
                                            std::int64_t rank);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_RANK_PLAN_H_
