#include "optim/checkpoint_muon.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/nearest_name.h"
#include "core/base/status_macros.h"
#include "core/tensor/tensor.h"
#include "optim/parameter.h"

namespace headwise {
namespace {

// Whether Muon can take it: a hidden matrix, or experts stacked.
bool IsMuons(const WeightLayout& layout) {
  if (!layout.role.has_value() || !IsHiddenMatrix(*layout.role)) return false;
  const std::size_t rank = layout.shape.size();
  if (rank != 2 && !(rank == 3 && *layout.role == ParameterRole::kExpert)) return false;
  for (const std::int64_t extent : layout.shape) {
    if (extent == 0) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<MuonPlan> MuonPlan::Create(absl::string_view config_json,
                                          absl::Span<const WeightShape> weights,
                                          const MuonPlanOptions& options) {
  HW_ASSIGN_OR_RETURN(CheckpointLayout layout,
                      ResolveHeadBlocks(config_json, weights, options.resolve));
  HW_RETURN_IF_ERROR(RequireHeadBlocks(layout, options.granularity));

  // Shapes are all that the groups look at.
  std::vector<headwise::Parameter> parameters;
  for (const WeightLayout& weight : layout.weights) {
    if (!IsMuons(weight)) continue;
    parameters.push_back({.name = weight.name,
                          .role = *weight.role,
                          .value = Tensor::Empty(weight.shape, DType::kF32, Device::kMeta),
                          .head_blocks = weight.blocks});
  }
  std::vector<const headwise::Parameter*> pointers;
  for (const headwise::Parameter& parameter : parameters) pointers.push_back(&parameter);
  HW_ASSIGN_OR_RETURN(std::vector<GroupedParameter> grouped,
                      AssignGroups(pointers, options.granularity, options.head_group_size));

  MuonPlan plan;
  plan.model_type_ = std::move(layout.model_type);
  std::size_t next = 0;
  for (WeightLayout& weight : layout.weights) {
    PlannedWeight& planned = plan.weights_.emplace_back();
    if (IsMuons(weight)) {
      planned.group = grouped[next].assignment.group;
      planned.blocks = std::move(grouped[next].blocks);
      ++next;
    }
    planned.layout = std::move(weight);
  }
  return plan;
}

absl::StatusOr<MuonParameter> MuonPlan::Parameter(absl::string_view name, float* value,
                                                  const float* gradient) const {
  const std::string wanted(name);
  std::vector<std::string> names;
  for (const PlannedWeight& weight : weights_) {
    if (weight.layout.name != wanted) {
      names.push_back(weight.layout.name);
      continue;
    }
    if (weight.group == OptimizerGroup::kAdamW) {
      return absl::InvalidArgumentError(absl::StrCat("weight ", wanted, " is not Muon's: ",
                                                     weight.layout.role.has_value()
                                                         ? headwise::Name(*weight.layout.role)
                                                         : "no rule knows what it is",
                                                     ", shape ", ToString(weight.layout.shape)));
    }
    const Shape& shape = weight.layout.shape;
    const std::int64_t width = shape.back();
    std::int64_t rows = 1;
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
    return MuonParameter{.name = wanted,
                         .value = {value, rows, width},
                         .gradient = {gradient, rows, width},
                         .blocks = weight.blocks,
                         .transposed_storage = weight.layout.transposed_storage};
  }
  return absl::NotFoundError(
      absl::StrCat("the checkpoint has no weight ", wanted, DidYouMean(wanted, names)));
}

}  // namespace headwise
