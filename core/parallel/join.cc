#include "core/parallel/join.h"

#include <array>
#include <cstddef>

#include "core/base/check.h"

namespace headwise {
namespace {

constexpr char kInvariantMixed[] =
    "I is one computation that every rank repeats and that counts once; next to it each rank's "
    "part "
    "is its own, so the gradient of the I operand would lack the terms of the other ranks";
constexpr char kInvariantPartial[] =
    "P is a sum that is still to be made, and I must be the finished value on every rank";
constexpr char kPartialMixed[] =
    "a rank's P is a term of a sum over the ranks, and its V or S a value of its own: neither "
    "adding up nor concatenating the results gives the value";
constexpr char kVaryingShard[] =
    "V does not say which part of the whole a rank holds, so it cannot be matched with shards";
constexpr char kAffine[] =
    "every rank would add the other term to its part of the sum, so it would be counted once per "
    "rank";
constexpr char kTwoPartials[] =
    "the product of two sums over the ranks is not the sum of the ranks' products";
constexpr char kPartialDivisor[] =
    "dividing by a part of a sum over the ranks is not dividing by the sum";
constexpr char kPartialNonlinear[] =
    "the operation is not linear: applied to the parts of a sum over the ranks it does not give "
    "parts of the result";

JoinResult Ok(AxisType type) { return {.ok = true, .type = type}; }
JoinResult Refuse(absl::string_view why) { return {.ok = false, .why = why}; }

JoinResult JoinPartial(OpKind kind, absl::Span<const AxisType> operands, std::size_t partials,
                       bool scalar) {
  switch (kind) {
    case OpKind::kLinear:
      return partials == operands.size() && !scalar ? Ok(AxisType::kPartial) : Refuse(kAffine);
    case OpKind::kMultilinear:
      return partials == 1 ? Ok(AxisType::kPartial) : Refuse(kTwoPartials);
    case OpKind::kDivision:
      return operands[0] == AxisType::kPartial && partials == 1 ? Ok(AxisType::kPartial)
                                                                : Refuse(kPartialDivisor);
    case OpKind::kNonlinear:
      break;
  }
  return Refuse(kPartialNonlinear);
}

}  // namespace

const char* Name(OpKind kind) {
  static constexpr const char* kNames[] = {"linear", "multilinear", "division", "nonlinear"};
  return kNames[static_cast<int>(kind)];
}

JoinResult JoinAxis(OpKind kind, absl::Span<const AxisType> operands, bool scalar) {
  HW_CHECK(!operands.empty());
  std::array<std::size_t, 5> count = {};
  for (const AxisType type : operands) ++count[static_cast<std::size_t>(type)];
  const auto of = [&](AxisType type) { return count[static_cast<std::size_t>(type)]; };
  const std::size_t partials = of(AxisType::kPartial);
  if (const std::size_t invariant = of(AxisType::kInvariant); invariant > 0) {
    if (partials > 0) return Refuse(kInvariantPartial);
    return invariant == operands.size() ? Ok(AxisType::kInvariant) : Refuse(kInvariantMixed);
  }
  const bool varying = of(AxisType::kVarying) > 0, sharded = of(AxisType::kShard) > 0;
  if (partials > 0 && (varying || sharded)) return Refuse(kPartialMixed);
  if (varying && sharded) return Refuse(kVaryingShard);
  if (partials > 0) return JoinPartial(kind, operands, partials, scalar);
  if (sharded) return Ok(AxisType::kShard);
  return Ok(varying ? AxisType::kVarying : AxisType::kReplicate);
}

}  // namespace headwise
