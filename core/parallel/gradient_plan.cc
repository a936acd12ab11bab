#include "core/parallel/gradient_plan.h"

#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/parallel/index_rule.h"
#include "core/parallel/layout_error.h"

namespace headwise {
namespace {

std::string AxisName(const LayoutType& x, int axis) {
  return x.mesh().Axes(x.view())[static_cast<std::size_t>(axis)].name;
}

std::string StepList(absl::Span<const Step> steps) {
  return absl::StrJoin(steps, "; ", [](std::string* out, const Step& step) {
    absl::StrAppend(out, step.ToString());
  });
}

}  // namespace

absl::StatusOr<std::vector<Step>> DeriveReduction(const LayoutType& gradient) {
  std::vector<Step> steps;
  if (!gradient.defined()) return steps;
  for (int axis = 0; axis < static_cast<int>(gradient.axis_types().size()); ++axis) {
    if (gradient.axis_type(axis) == AxisType::kVarying) {
      return LayoutError(
          "gradient plan", AxisName(gradient, axis), {{"gradient", gradient}},
          "the ranks' gradients vary, and nothing says that they are terms of a sum");
    }
    if (gradient.axis_type(axis) != AxisType::kPartial) continue;
    steps.push_back({.kind = StepKind::kAllReduce,
                     .axis = AxisName(gradient, axis),
                     .to = AxisType::kReplicate});
  }
  return steps;
}

absl::StatusOr<LayoutType> CheckReduction(absl::string_view parameter, const LayoutType& gradient,
                                          absl::Span<const Step> steps) {
  const std::string op = absl::StrCat("gradient plan of ", parameter);
  LayoutType reduced = gradient;
  for (const Step& step : steps) {
    const auto next = Apply(step, reduced);
    if (!next.ok()) {
      return Annotate(next.status(), op);
    }
    reduced = *next;
  }
  if (!reduced.defined()) return reduced;
  for (int axis = 0; axis < static_cast<int>(reduced.axis_types().size()); ++axis) {
    const AxisType type = reduced.axis_type(axis);
    if (type != AxisType::kPartial && type != AxisType::kVarying) continue;
    return LayoutError(
        op, AxisName(reduced, axis), {{"gradient", gradient}},
        absl::StrCat("after the reduction (", steps.empty() ? "none" : StepList(steps), ") it is ",
                     Name(type),
                     " still, and the optimizer would step by one rank's part: reduce it over this "
                     "axis"));
  }
  return reduced;
}

absl::StatusOr<LayoutType> SquaredNorm(const LayoutType& gradient) {
  if (!gradient.defined()) return LayoutType();
  HW_ASSIGN_OR_RETURN(
      const LayoutType squares,
      DeriveElementwise("squared norm", OpKind::kNonlinear, {{"gradient", gradient}}));
  const std::string letters = std::string("abcdefgh").substr(0, squares.dims().size());
  HW_ASSIGN_OR_RETURN(LayoutType norm, DeriveIndexed({.op = "squared norm",
                                                      .letters = absl::StrCat(letters, "->"),
                                                      .dtype = DType::kF64},
                                                     {{"squares", squares}}));
  for (int axis = 0; axis < static_cast<int>(norm.axis_types().size()); ++axis) {
    if (norm.axis_type(axis) != AxisType::kVarying) continue;
    HW_ASSIGN_OR_RETURN(norm, Apply({.kind = StepKind::kReinterpret,
                                     .axis = AxisName(norm, axis),
                                     .to = AxisType::kPartial},
                                    norm));
  }
  return norm;
}

void GradientPlan::AddRelaxed(absl::string_view parameter, const LayoutType& gradient,
                              absl::Span<const Step> steps) {
  gradients_.push_back({.parameter = std::string(parameter),
                        .gradient = gradient,
                        .steps = {steps.begin(), steps.end()},
                        .reduced = {}});
}

absl::Status GradientPlan::Add(absl::string_view parameter, const LayoutType& gradient,
                               absl::Span<const Step> steps) {
  if (!names_.emplace(parameter).second) {
    return LayoutError(absl::StrCat("gradient plan of ", parameter), "", {{"gradient", gradient}},
                       "the parameter comes twice: gradients of several uses are added before the "
                       "plan");
  }
  HW_ASSIGN_OR_RETURN(const LayoutType reduced, CheckReduction(parameter, gradient, steps));
  PlannedGradient planned = {.parameter = std::string(parameter),
                             .gradient = gradient,
                             .steps = std::vector<Step>(steps.begin(), steps.end()),
                             .reduced = reduced};
  LayoutType at = gradient;
  for (const Step& step : steps) {
    planned.bytes_sent += BytesSent(step, at);
    HW_ASSIGN_OR_RETURN(at, Apply(step, at));
  }
  gradients_.push_back(std::move(planned));
  return absl::OkStatus();
}

std::string GradientPlan::NormGroups() const {
  std::map<std::string, int> groups;
  for (const PlannedGradient& planned : gradients_) {
    const auto norm = SquaredNorm(planned.reduced);
    if (!norm.ok() || !norm->defined()) continue;
    std::vector<std::string> axes;
    for (int axis = 0; axis < static_cast<int>(norm->axis_types().size()); ++axis) {
      if (norm->axis_type(axis) == AxisType::kPartial) axes.push_back(AxisName(*norm, axis));
    }
    ++groups[axes.empty() ? "none" : absl::StrJoin(axes, ",")];
  }
  return absl::StrJoin(groups, "; ", [](std::string* out, const auto& group) {
    absl::StrAppend(out, group.first, ": ", group.second, " parameters");
  });
}

std::string GradientPlan::ToString() const {
  std::string text;
  for (const PlannedGradient& planned : gradients_) {
    absl::StrAppend(&text, planned.parameter, ": ", planned.gradient.ToString(), ": ",
                    planned.steps.empty() ? "none" : StepList(planned.steps), ", ",
                    planned.bytes_sent, " bytes\n");
  }
  return text;
}

}  // namespace headwise
