#include "core/parallel/relaxed.h"

#include <string>
#include <utility>

#include "core/parallel/layout_error.h"
#include "core/parallel/layout_maker.h"

namespace headwise {
namespace {

// x with another type on an axis, unless x is cut by it or has that type.
bool Retype(LayoutType& x, int axis, AxisType type) {
  if (x.axis_type(axis) == AxisType::kShard || x.axis_type(axis) == type) return false;
  LayoutMaker maker(x);
  maker.types[static_cast<std::size_t>(axis)] = type;
  x = std::move(maker).Make();
  return true;
}

}  // namespace

bool RelaxTypes(const absl::Status& refusal, absl::Span<LayoutType> operands) {
  const std::string name = AxisOfError(refusal);
  bool changed = false;
  for (LayoutType& operand : operands) {
    if (name.empty() || !operand.defined()) continue;
    const auto axes = operand.mesh().Find(operand.view(), name);
    if (!axes.ok()) continue;
    for (const int axis : *axes) changed |= Retype(operand, axis, AxisType::kReplicate);
  }
  return changed;
}

absl::StatusOr<LayoutType> ApplyRelaxed(const Step& step, LayoutType& x) {
  absl::StatusOr<LayoutType> result = Apply(step, x);
  if (result.ok() || !x.defined() || step.kind == StepKind::kReinterpretMesh) return result;
  const auto axes = x.mesh().Find(x.view(), step.axis);
  if (!axes.ok()) return result;
  for (const AxisType type :
       {AxisType::kInvariant, AxisType::kReplicate, AxisType::kPartial, AxisType::kVarying}) {
    LayoutType other = x;
    for (const int axis : *axes) Retype(other, axis, type);
    if (auto next = Apply(step, other); next.ok()) {
      x = std::move(other);
      return next;
    }
  }
  return result;
}

LayoutType DualType(const LayoutType& value) {
  if (!value.defined()) return value;
  LayoutMaker maker(value);
  for (AxisType& type : maker.types) type = DualOf(type);
  return std::move(maker).Make();
}

}  // namespace headwise
