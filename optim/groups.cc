#include "optim/groups.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace headwise {
namespace {

// E matrices of `rows` rows, one above the other.
absl::StatusOr<HeadBlocks> BlocksOfExperts(std::int64_t experts, std::int64_t rows) {
  std::vector<HeadBlock> blocks(static_cast<std::size_t>(experts));
  for (std::int64_t e = 0; e < experts; ++e) {
    HeadBlock& block = blocks[static_cast<std::size_t>(e)];
    block.ranges = {{e * rows, rows}};
    block.head = e;
  }
  return HeadBlocks::Create(experts * rows, std::move(blocks));
}

// The declared blocks, checked against the matrix [rows, columns] and coarsened.
absl::StatusOr<HeadBlocks> BlocksOfHeads(const Parameter& parameter, Granularity granularity,
                                         std::int64_t head_group_size) {
  const HeadBlocks& declared = *parameter.head_blocks;
  const bool by_rows = declared.axis() == BlockAxis::kRows;
  const std::int64_t extent = parameter.value.dim(by_rows ? 0 : 1);
  if (declared.axis_size() != extent) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", parameter.name, " has ", extent, by_rows ? " rows" : " columns",
                     ", but its head blocks cover ", declared.axis_size()));
  }
  absl::StatusOr<HeadBlocks> blocks = declared.Coarsen(granularity, head_group_size);
  if (!blocks.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", parameter.name, ": ", blocks.status().message()));
  }
  return blocks;
}

absl::StatusOr<GroupedParameter> Assign(const Parameter& parameter, Granularity granularity,
                                        std::int64_t head_group_size) {
  const Tensor& value = parameter.value;
  if (!value.defined() || value.size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", parameter.name, " has no elements",
        value.defined() ? absl::StrCat(": shape ", ToString(value.shape())) : std::string()));
  }
  GroupedParameter result{{parameter.name, parameter.role, OptimizerGroup::kAdamW, value.size(), 0},
                          std::nullopt};
  if (!IsHiddenMatrix(parameter.role) || value.rank() < 2) {
    if (parameter.head_blocks.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", parameter.name, " (", Name(parameter.role), ", shape ",
                       ToString(value.shape()),
                       ") declares head blocks, but is not a matrix that Muon updates"));
    }
    if (parameter.role == ParameterRole::kBalancingBias) {
      result.assignment.group = OptimizerGroup::kBalancing;
    }
    return result;
  }

  const bool batch = value.rank() == 3 && parameter.role == ParameterRole::kExpert;
  if (value.rank() > 2 && !batch) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", parameter.name, " (", Name(parameter.role),
        ") must be a matrix [out_features, in_features], found shape ", ToString(value.shape())));
  }
  result.assignment.group = OptimizerGroup::kMuon;
  if (batch && parameter.head_blocks.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", parameter.name, " is a batch of experts and cannot declare head blocks"));
  }
  if (batch) {
    HW_ASSIGN_OR_RETURN(result.blocks, BlocksOfExperts(value.dim(0), value.dim(1)));
  } else if (parameter.head_blocks.has_value()) {
    HW_ASSIGN_OR_RETURN(result.blocks, BlocksOfHeads(parameter, granularity, head_group_size));
    if (result.blocks->granularity() != Granularity::kWholeMatrix) {
      result.assignment.group = OptimizerGroup::kMuonPerHead;
    }
  } else {
    result.blocks = HeadBlocks::Whole(value.dim(0));
  }
  result.assignment.blocks = result.blocks->size();
  return result;
}

}  // namespace

const char* Name(OptimizerGroup group) {
  switch (group) {
    case OptimizerGroup::kMuonPerHead:
      return "muon_per_head";
    case OptimizerGroup::kMuon:
      return "muon";
    case OptimizerGroup::kAdamW:
      return "adamw";
    case OptimizerGroup::kBalancing:
      return "balancing";
  }
  return "?";
}

bool IsHiddenMatrix(ParameterRole role) {
  switch (role) {
    case ParameterRole::kPackedQkv:
    case ParameterRole::kQuery:
    case ParameterRole::kKey:
    case ParameterRole::kValue:
    case ParameterRole::kAttentionGate:
    case ParameterRole::kAttentionOutput:
    case ParameterRole::kMlp:
    case ParameterRole::kExpert:
      return true;
    case ParameterRole::kEmbedding:
    case ParameterRole::kOutputHead:
    case ParameterRole::kNorm:
    case ParameterRole::kBias:
    case ParameterRole::kRouter:
    case ParameterRole::kBalancingBias:
      return false;
  }
  HW_CHECK(false) << "not a ParameterRole: " << static_cast<int>(role);
  return false;
}

absl::StatusOr<std::vector<GroupedParameter>> AssignGroups(
    absl::Span<const Parameter* const> parameters, Granularity granularity,
    std::int64_t head_group_size) {
  std::vector<GroupedParameter> result;
  std::set<std::string> names;
  bool any_head_blocks = false;
  for (const Parameter* parameter : parameters) {
    HW_CHECK(parameter != nullptr);
    if (parameter->name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", result.size(), " (", Name(parameter->role), ") has no name"));
    }
    if (!names.insert(parameter->name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two parameters are named ", parameter->name));
    }
    HW_ASSIGN_OR_RETURN(GroupedParameter grouped, Assign(*parameter, granularity, head_group_size));
    any_head_blocks |= grouped.assignment.group == OptimizerGroup::kMuonPerHead;
    result.push_back(std::move(grouped));
  }
  if (granularity != Granularity::kWholeMatrix && !any_head_blocks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "granularity ", Name(granularity), " was asked for, but none of the ", parameters.size(),
        " parameters declares head blocks; whole_matrix is what such a model can have"));
  }
  return result;
}

}  // namespace headwise
