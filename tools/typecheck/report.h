// Report: all that the tool says of a layout, as data; text.h, json.h and layer_drawing.h show it.
//
//   HW_ASSIGN_OR_RETURN(const Report report, MakeReport(request, {}));
//   std::fputs(ReportText(report, {}).c_str(), stdout);
//
// Parts that differ only in their layer's number are one row. Bytes are of one rank: of the kind of
// rank that needs the most where they differ.
#ifndef HEADWISE_TOOLS_TYPECHECK_REPORT_H_
#define HEADWISE_TOOLS_TYPECHECK_REPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/parallel/layout_type.h"
#include "core/parallel/step.h"
#include "tools/typecheck/check.h"

namespace headwise::typecheck {

struct ParameterRow {
  std::string name;  // "layers.0-61.attention.wqkv"
  std::int64_t count = 0;
  std::string role, optimizer;  // "packed_qkv"; "muon", "adamw" or "balancing"
  LayoutType layout;
  std::int64_t bytes = 0;  // of rank 0's share of one
};

struct ActivationRow {
  std::string boundary;
  std::int64_t count = 0;
  bool backward = false;  // an activation that the backward computes again, or a gradient
  LayoutType before, after;
  std::vector<Step> steps;  // of the forward; those of a gradient follow from the types
};

struct GradientRow {
  std::string parameter;
  std::int64_t count = 0;
  LayoutType gradient, reduced;
  std::vector<Step> steps;
  std::int64_t bytes_sent = 0;  // of one
};

enum class Phase { kForward, kBackward, kGradients, kOptimizer };
const char* Name(Phase phase);

struct CommunicationRow {
  Phase phase = Phase::kForward;
  std::string axis, collective;       // of the optimizer: what it is for
  std::int64_t count = 0, bytes = 0;  // of all of them
};

struct Memory {
  std::int64_t rank = 0;  // the first of its kind
  std::int64_t weights = 0, copies = 0, gradients = 0, optimizer = 0, activations = 0;
  std::int64_t total() const { return weights + copies + gradients + optimizer + activations; }
};

struct MistakeRow {
  std::string module;  // "layers.0-61.attention"; "" for what is not of one
  std::int64_t count = 0;
  std::string op, axis;  // empty where the mistake is of none
  std::vector<std::string> operands;
  std::string why, message;  // the message is all of it in one line
  // Edits of the plan, as --edit takes them, that were tried on the whole model.
  std::vector<VerifiedFix> fixes;
};

struct Report {
  CheckRequest request;
  std::int64_t parameters_of_model = 0;
  bool own_plan = false;
  Mesh mesh;
  std::vector<std::int64_t> rank_kinds;
  double seconds = 0;

  std::vector<MistakeRow> mistakes;
  // Other flags under which everything is accepted, tried too; where no edit of the plan does it.
  std::vector<std::string> other_flags;
  double search_seconds = 0;

  // Empty if there are mistakes.
  std::vector<ParameterRow> parameters;
  std::vector<ActivationRow> activations;
  std::vector<GradientRow> gradients;
  std::string norm_groups;  // GradientPlan::NormGroups()
  std::vector<CommunicationRow> communication;
  std::vector<Memory> memory;  // per kind of rank
  // Why the optimizer would not run on this layout; "" if it does.
  std::string optimizer_error;

  // For drawings; null where the mesh has no layout.
  std::shared_ptr<const CheckedModel> checked;

  bool accepted() const { return mistakes.empty(); }
};

struct ReportOptions {
  bool every_mistake = false;  // not the first alone
  bool find_fixes = true;
};

// kInvalidArgument: sizes that no pass can have, or an edit that is of nothing in the model. What is
// wrong with the layout, a mesh without one included, is the report's.
absl::StatusOr<Report> MakeReport(const CheckRequest& request, const ReportOptions& options);

}  // namespace headwise::typecheck

#endif  // HEADWISE_TOOLS_TYPECHECK_REPORT_H_
