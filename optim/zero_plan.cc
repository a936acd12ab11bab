#include "optim/zero_plan.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/parallel/gradient_plan.h"
#include "core/parallel/mesh.h"
#include "core/parallel/step.h"

namespace headwise {
namespace {

// The gradient as the backward leaves it: on every axis the dual of the value's type.
absl::StatusOr<LayoutType> GradientOf(const LayoutType& value) {
  const auto axes = value.mesh().Axes(value.view());
  LayoutSpec spec = {.view = value.view()};
  std::vector<Dim> shape;
  for (const ShardedDim& dim : value.dims()) {
    Dim& factors = shape.emplace_back();
    for (const ShardedFactor& f : dim) {
      factors.push_back(f.factor);
      for (const int axis : f.axes) {
        spec.axes.push_back({.axis = axes[static_cast<std::size_t>(axis)].name,
                             .type = AxisType::kShard,
                             .dim = static_cast<int>(shape.size()) - 1,
                             .sizes = f.sizes});
      }
    }
  }
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    const AxisType type = value.axis_types()[axis];
    if (type == AxisType::kShard) continue;
    spec.axes.push_back({.axis = axes[axis].name, .type = DualOf(type)});
  }
  return LayoutType::Declare(value.mesh(), shape, value.dtype(), spec);
}

std::int64_t ElementsOf(const LayoutType& type) {
  return type.LocalBytes(0) / SizeOf(type.dtype());
}

absl::StatusOr<std::int64_t> BytesOf(const std::vector<Step>& steps, LayoutType at) {
  std::int64_t bytes = 0;
  for (const Step& step : steps) {
    bytes += BytesSent(step, at);
    HW_ASSIGN_OR_RETURN(at, Apply(step, at));
  }
  return bytes;
}

// The reduction that ends in a reduce_scatter over `axis`, which `numbers` stand for.
std::vector<Step> Scattered(const LayoutType& gradient, absl::string_view axis,
                            const std::vector<int>& numbers, const std::vector<Step>& reduced) {
  std::vector<Step> steps;
  const auto axes = gradient.mesh().Axes(gradient.view());
  for (const Step& step : reduced) {
    const bool of_axis = std::any_of(numbers.begin(), numbers.end(), [&](int number) {
      return axes[static_cast<std::size_t>(number)].name == step.axis;
    });
    if (!of_axis) steps.push_back(step);
  }
  steps.push_back({.kind = StepKind::kReduceScatter,
                   .axis = std::string(axis),
                   .to = AxisType::kShard,
                   .dim = 0});
  return steps;
}

absl::StatusOr<ZeroParameter> PlanParameter(const ParameterType& parameter,
                                            absl::string_view axis) {
  ZeroParameter planned = {.name = parameter.name};
  for (const AxisType type : parameter.type.axis_types()) {
    if (type != AxisType::kPartial && type != AxisType::kVarying) continue;
    return absl::FailedPreconditionError(absl::StrCat("parameter ", parameter.name, ": its value ",
                                                      parameter.type.ToString(), " is ", Name(type),
                                                      " somewhere; declare it R, I or S"));
  }
  HW_ASSIGN_OR_RETURN(const LayoutType gradient, GradientOf(parameter.type));
  HW_ASSIGN_OR_RETURN(std::vector<Step> steps, DeriveReduction(gradient));
  HW_ASSIGN_OR_RETURN(planned.state, CheckReduction(parameter.name, gradient, steps));
  planned.replicated_elements = ElementsOf(planned.state);

  const auto numbers = gradient.mesh().Find(gradient.view(), axis);
  const auto partial = [&](int number) { return gradient.axis_type(number) == AxisType::kPartial; };
  if (!numbers.ok() || numbers->empty() ||
      !std::all_of(numbers->begin(), numbers->end(), partial)) {
    planned.reason =
        absl::StrCat("the gradient ", gradient.ToString(), " is not a sum over ", axis);
  } else {
    const std::vector<Step> scattered = Scattered(gradient, axis, *numbers, steps);
    const absl::StatusOr<LayoutType> share = CheckReduction(parameter.name, gradient, scattered);
    if (share.ok()) {
      steps = scattered;
      planned.state = *share;
      planned.cut = true;
      planned.gather_bytes = BytesSent(
          {.kind = StepKind::kAllGather, .axis = std::string(axis), .to = AxisType::kReplicate},
          *share);
    } else {
      planned.reason = std::string(share.status().message());
    }
  }
  planned.elements = ElementsOf(planned.state);
  HW_ASSIGN_OR_RETURN(planned.reduction_bytes, BytesOf(steps, gradient));
  planned.reduction = {
      .part = PlanPart::kReduction, .name = parameter.name, .steps = std::move(steps)};
  return planned;
}

}  // namespace

std::string ZeroPlan::ToString() const {
  std::string text;
  std::int64_t reduction = 0, gather = 0, replicated = 0, elements = 0;
  for (const ZeroParameter& p : parameters) {
    absl::StrAppend(&text, p.reduction.ToString(), ": ", p.reduction_bytes, " bytes, weights ",
                    p.gather_bytes, " bytes, state of ", p.elements, " of ", p.replicated_elements,
                    " elements", p.cut ? "" : absl::StrCat(" (", p.reason, ")"), "\n");
    reduction += p.reduction_bytes;
    gather += p.gather_bytes;
    replicated += p.replicated_elements;
    elements += p.elements;
  }
  absl::StrAppend(&text, "in all: gradients ", reduction, " bytes, weights ", gather,
                  " bytes, state of ", elements, " of ", replicated, " elements\n");
  return text;
}

absl::StatusOr<ZeroPlan> PlanZero(absl::Span<const ParameterType> parameters,
                                  absl::string_view axis) {
  ZeroPlan plan;
  for (const ParameterType& parameter : parameters) {
    const Mesh& mesh = parameter.type.mesh();
    if (!mesh.Find(MeshView::kDense, axis).ok()) {
      HW_RETURN_IF_ERROR(mesh.Find(MeshView::kExpert, axis).status());
    }
    HW_ASSIGN_OR_RETURN(ZeroParameter planned, PlanParameter(parameter, axis));
    plan.parameters.push_back(std::move(planned));
  }
  return plan;
}

}  // namespace headwise
