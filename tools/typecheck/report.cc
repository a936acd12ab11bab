#include "tools/typecheck/report.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/parallel/layout_error.h"
#include "optim/groups.h"
#include "tools/typecheck/fixes.h"
#include "tools/typecheck/folded_names.h"
#include "tools/typecheck/words.h"

namespace headwise::typecheck {
namespace {

std::int64_t Elements(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  return elements;
}

// optim/groups.h, by role and shape.
std::string OptimizerOf(ParameterRole role, const LayoutType& layout) {
  if (role == ParameterRole::kBalancingBias) return "balancing";
  return IsHiddenMatrix(role) && layout.rank() >= 2 ? "muon" : "adamw";
}

// Of an optimizer's fp32 state, per element: AdamW's two moments, Muon's momentum.
std::int64_t StateBytes(const std::string& optimizer) {
  return optimizer == "adamw" ? 8 : optimizer == "muon" ? 4 : 0;
}

Memory MemoryOf(const CheckedModel::Kind& kind) {
  Memory memory = {.rank = kind.rank,
                   .copies = kind.pass.weight_copy_bytes,
                   .activations = kind.pass.activation_bytes};
  for (const auto& one : kind.pass.parameters) {
    memory.weights += one.bytes;
    const std::int64_t elements = one.bytes / SizeOf(one.layout.dtype());
    memory.optimizer += StateBytes(OptimizerOf(one.role, one.layout)) * elements;
  }
  memory.gradients = memory.weights;
  return memory;
}

std::vector<ParameterRow> Parameters(const TypePassReport& pass) {
  std::vector<NamedFact> facts;
  for (const auto& one : pass.parameters) {
    facts.push_back({one.name, absl::StrCat(one.layout.ToString(false), Name(one.role))});
  }
  std::vector<ParameterRow> rows;
  for (const FoldedName& folded : FoldNames(facts)) {
    const auto& one = pass.parameters[folded.first];
    rows.push_back({.name = folded.name,
                    .count = folded.count,
                    .role = Name(one.role),
                    .optimizer = OptimizerOf(one.role, one.layout),
                    .layout = one.layout,
                    .bytes = one.bytes});
  }
  return rows;
}

std::vector<ActivationRow> Activations(const LayoutChecker& checker) {
  std::vector<NamedFact> facts;
  for (const auto& crossing : checker.crossings()) {
    facts.push_back(
        {crossing.boundary, absl::StrCat(crossing.backward, crossing.before.ToString(false), "->",
                                         crossing.after.ToString(false))});
  }
  std::vector<ActivationRow> rows;
  for (const FoldedName& folded : FoldNames(facts)) {
    const auto& crossing = checker.crossings()[folded.first];
    rows.push_back({.boundary = folded.name,
                    .count = folded.count,
                    .backward = crossing.backward,
                    .before = crossing.before,
                    .after = crossing.after,
                    .steps = crossing.backward ? std::vector<Step>()
                                               : checker.plan().Forward(crossing.boundary)});
  }
  return rows;
}

std::vector<GradientRow> Gradients(const GradientPlan& plan) {
  std::vector<NamedFact> facts;
  for (const PlannedGradient& one : plan.gradients()) {
    facts.push_back(
        {one.parameter, absl::StrCat(one.gradient.ToString(false), StepsText(one.steps))});
  }
  std::vector<GradientRow> rows;
  for (const FoldedName& folded : FoldNames(facts)) {
    const PlannedGradient& one = plan.gradients()[folded.first];
    rows.push_back({.parameter = folded.name,
                    .count = folded.count,
                    .gradient = one.gradient,
                    .reduced = one.reduced,
                    .steps = one.steps,
                    .bytes_sent = one.bytes_sent});
  }
  return rows;
}

std::vector<CommunicationRow> CommunicationOf(const LayoutChecker& checker,
                                              const OptimizerAccount& optimizer) {
  std::map<std::tuple<Phase, std::string, std::string>, CommunicationRow> rows;
  const auto add_row = [&](Phase phase, const std::string& axis, const std::string& collective,
                           std::int64_t bytes) {
    if (bytes == 0) return;
    CommunicationRow& row = rows[{phase, axis, collective}];
    row.phase = phase;
    row.axis = axis;
    row.collective = collective;
    ++row.count;
    row.bytes += bytes;
  };
  const auto add = [&](Phase phase, const Step& step, std::int64_t bytes) {
    add_row(phase, step.axis, Name(step.kind), bytes);
  };
  for (const Communication& one : checker.communication()) {
    add(one.backward ? Phase::kBackward : Phase::kForward, one.step, one.bytes);
  }
  for (const PlannedGradient& planned : checker.gradient_plan().gradients()) {
    LayoutType at = planned.gradient;
    for (const Step& step : planned.steps) {
      add(Phase::kGradients, step, BytesSent(step, at));
      const auto next = Apply(step, at);
      HW_CHECK(next.ok()) << next.status();
      at = *next;
    }
  }
  for (const OptimizerMessage& message : optimizer.messages) {
    add_row(Phase::kOptimizer, message.axis, message.what, message.bytes_sent);
  }
  std::vector<CommunicationRow> list;
  for (auto& [key, row] : rows) list.push_back(std::move(row));
  return list;
}

MistakeRow RowOf(const LayoutMistake& mistake) {
  MistakeRow row = {.module = mistake.module,
                    .count = 1,
                    .op = OpOfError(mistake.status),
                    .axis = AxisOfError(mistake.status),
                    .operands = OperandsOfError(mistake.status),
                    .why = WhyOfError(mistake.status),
                    .message = mistake.ToString()};
  if (row.why.empty()) row.why = std::string(mistake.status.message());
  return row;
}

std::vector<MistakeRow> Mistakes(const std::vector<LayoutMistake>& mistakes) {
  std::vector<NamedFact> facts;
  for (const LayoutMistake& mistake : mistakes) {
    facts.push_back({mistake.module, std::string(mistake.status.message())});
  }
  std::vector<MistakeRow> rows;
  for (const FoldedName& folded : FoldNames(facts)) {
    rows.push_back(RowOf(mistakes[folded.first]));
    rows.back().module = folded.name;
    rows.back().count = folded.count;
  }
  return rows;
}

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

const char* Name(Phase phase) {
  static constexpr const char* kNames[] = {"forward", "backward", "gradients", "optimizer"};
  return kNames[static_cast<int>(phase)];
}

absl::StatusOr<Report> MakeReport(const CheckRequest& request, const ReportOptions& options) {
  HW_RETURN_IF_ERROR(CheckSizes(request));
  Report report = {.request = request, .own_plan = request.plan.has_value(), .mesh = request.mesh};
  const auto layout = PlannedLayout(request);
  if (!layout.ok()) {
    report.mistakes.push_back(RowOf({.module = "", .status = layout.status()}));
  } else {
    report.mesh = layout->mesh;
    HW_ASSIGN_OR_RETURN(CheckedModel checked, Check(request, *layout));
    report.checked = std::make_shared<const CheckedModel>(std::move(checked));
    report.mistakes = Mistakes(report.checked->mistakes);
    report.seconds = report.checked->seconds;
    for (const CheckedModel::Kind& kind : report.checked->kinds) {
      report.rank_kinds.push_back(kind.rank);
    }
    HW_RETURN_IF_ERROR(CheckEditsApply(request, *report.checked->checker));
  }
  if (!report.accepted()) {
    const auto begin = std::chrono::steady_clock::now();
    if (!options.every_mistake) report.mistakes.resize(1);
    if (options.find_fixes && layout.ok()) {
      report.mistakes[0].fixes = FindPlanFixes(request, *layout, report.checked->mistakes[0]);
    }
    if (options.find_fixes && report.mistakes[0].fixes.empty()) {
      report.other_flags = FindOtherFlags(request);
    }
    report.search_seconds = SecondsSince(begin);
    return report;
  }
  const CheckedModel& checked = *report.checked;
  for (const auto& one : checked.kinds[0].pass.parameters) {
    report.parameters_of_model += Elements(one.layout.GlobalShape());
  }
  report.parameters = Parameters(checked.kinds[0].pass);
  report.activations = Activations(*checked.checker);
  report.gradients = Gradients(checked.checker->gradient_plan());
  report.norm_groups = checked.checker->gradient_plan().NormGroups();
  const auto optimizer = CheckOptimizer(request, *layout);
  if (!optimizer.ok()) report.optimizer_error = std::string(optimizer.status().message());
  report.communication = CommunicationOf(*checked.checker, optimizer.value_or(OptimizerAccount()));
  for (const CheckedModel::Kind& kind : checked.kinds) report.memory.push_back(MemoryOf(kind));
  return report;
}

}  // namespace headwise::typecheck
