#include "core/parallel/relaxed.h"

#include <string>
#include <utility>

#include "core/parallel/layout_error.h"
#include "core/parallel/layout_maker.h"

namespace headwise {
namespace {

// x with another type on an axis, unless x is cut by it.
void Retype(LayoutType& x, int axis, AxisType type) {
  if (x.axis_type(axis) == AxisType::kShard) return;
  LayoutMaker maker(x);
  maker.types[static_cast<std::size_t>(axis)] = type;
  x = std::move(maker).Make();
}

}  // namespace

std::optional<std::vector<LayoutType>> RelaxedTypes(const absl::Status& refusal,
                                                    absl::Span<const LayoutType> operands,
                                                    int attempt) {
  const std::string name = AxisOfError(refusal);
  const int count = static_cast<int>(operands.size());
  if (name.empty() || attempt >= 2 * count + 3) return std::nullopt;
  // One to R, one to P; then all to R, P or I.
  const int one = attempt < 2 * count ? attempt % count : -1;
  const int kind = one >= 0 ? attempt / count : attempt - 2 * count;
  const AxisType to = kind == 0   ? AxisType::kReplicate
                      : kind == 1 ? AxisType::kPartial
                                  : AxisType::kInvariant;
  std::vector<LayoutType> relaxed(operands.begin(), operands.end());
  for (int i = 0; i < count; ++i) {
    LayoutType& operand = relaxed[static_cast<std::size_t>(i)];
    if ((one >= 0 && one != i) || !operand.defined()) continue;
    const auto axes = operand.mesh().Find(operand.view(), name);
    if (!axes.ok()) continue;
    for (const int axis : *axes) Retype(operand, axis, to);
  }
  return relaxed;
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
