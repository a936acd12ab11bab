#include "model/cli/model_tables.h"

#include <unistd.h>

#include <bit>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "model/report/progress.h"
#include "optim/groups.h"
#include "optim/settings.h"

namespace headwise {
namespace {

// "17,177,088"
std::string WithCommas(std::int64_t n) {
  std::string digits = absl::StrCat(n);
  for (std::size_t i = digits.size(); i > 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

// Of an optimizer's state, per element.
double StateBytes(OptimizerGroup group) {
  switch (group) {
    case OptimizerGroup::kAdamW:
      return 8;
    case OptimizerGroup::kBalancing:
      return 0;
    default:
      return 4;
  }
}

}  // namespace

absl::StatusOr<std::vector<ParameterAssignment>> AssignOptimizerGroups(
    const OptimizerConfig& config, const std::vector<Parameter*>& parameters) {
  HW_ASSIGN_OR_RETURN(const OptimizerSettings settings, ResolveSettings(config));
  const std::vector<const Parameter*> constants(parameters.begin(), parameters.end());
  HW_ASSIGN_OR_RETURN(const std::vector<GroupedParameter> groups,
                      AssignGroups(constants, settings.granularity, settings.head_group_size));
  std::vector<ParameterAssignment> assignments;
  for (const GroupedParameter& group : groups) assignments.push_back(group.assignment);
  return assignments;
}

std::int64_t NumParameters(const std::vector<ParameterAssignment>& assignments) {
  std::int64_t total = 0;
  for (const ParameterAssignment& a : assignments) total += a.elements;
  return total;
}

std::string ParameterTable(const std::vector<ParameterAssignment>& assignments) {
  struct Row {
    std::int64_t tensors = 0, elements = 0, blocks = 0;
  };
  std::map<std::pair<OptimizerGroup, ParameterRole>, Row> rows;
  for (const ParameterAssignment& a : assignments) {
    Row& row = rows[{a.group, a.role}];
    ++row.tensors;
    row.elements += a.elements;
    row.blocks += a.blocks;
  }
  const std::int64_t total = NumParameters(assignments);
  std::string out = absl::StrFormat("%-18s %-14s %8s %15s %7s %8s\n", "role", "optimizer",
                                    "tensors", "parameters", "share", "blocks");
  for (const auto& [key, row] : rows) {
    absl::StrAppendFormat(&out, "%-18s %-14s %8d %15s %6.1f%% %8s\n", Name(key.second),
                          Name(key.first), row.tensors, WithCommas(row.elements),
                          100.0 * static_cast<double>(row.elements) / static_cast<double>(total),
                          row.blocks > 0 ? absl::StrCat(row.blocks) : "-");
  }
  absl::StrAppendFormat(&out, "%-18s %-14s %8d %15s %6.1f%%\n", "total", "", assignments.size(),
                        WithCommas(total), 100.0);
  return out;
}

std::vector<std::pair<std::string, double>> MemoryRows(
    const RunConfig& config, const std::vector<ParameterAssignment>& assignments) {
  double weights = 0, state = 0;
  for (const ParameterAssignment& a : assignments) {
    weights += 4.0 * static_cast<double>(a.elements);
    state += StateBytes(a.group) * static_cast<double>(a.elements);
  }
  // The binary counter of partial sums (model/gradient_accumulator.h).
  const int partials =
      std::bit_width(static_cast<std::uint64_t>(config.training().micro_batches())) - 1;
  const double copies = config.training().compute_dtype() == BF16 ? weights / 2 : 0;
  return {
      {"master weights, fp32", weights}, {"bf16 copies, at most", copies},
      {"gradients, fp32", weights},      {"partial sums of micro-batches", weights * partials},
      {"optimizer state, fp32", state},
  };
}

absl::Status CheckMemory(const RunConfig& config,
                         const std::vector<ParameterAssignment>& assignments,
                         std::int64_t gpu_memory) {
  double needed = 0;
  for (const auto& [name, bytes] : MemoryRows(config, assignments)) needed += bytes;
  const double there = gpu_memory > 0 ? static_cast<double>(gpu_memory)
                                      : static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                                            static_cast<double>(sysconf(_SC_PAGESIZE));
  if (needed <= there) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "memory: this model's weights, gradients and optimizer state need ", FormatBytes(needed),
      "; expected at most the ", FormatBytes(there),
      gpu_memory > 0 ? " that are free on the GPU" : " of this machine", "; try a smaller model"));
}

std::string MemoryTable(const RunConfig& config,
                        const std::vector<ParameterAssignment>& assignments) {
  std::string out;
  double total = 0;
  for (const auto& [name, bytes] : MemoryRows(config, assignments)) {
    total += bytes;
    if (bytes > 0) absl::StrAppendFormat(&out, "%-32s %12s\n", name, FormatBytes(bytes));
  }
  absl::StrAppendFormat(&out, "%-32s %12s\n", "total, without activations", FormatBytes(total));
  return out;
}

}  // namespace headwise
