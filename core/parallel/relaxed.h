// Types as if they had fitted: for tests that run a layout that the checker refuses, to see that it
// is wrong (LayoutChecker::set_relaxed). What comes of it proves nothing.
#ifndef HEADWISE_CORE_PARALLEL_RELAXED_H_
#define HEADWISE_CORE_PARALLEL_RELAXED_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/parallel/layout_type.h"
#include "core/parallel/step.h"

namespace headwise {

// The operands of a rule that refused them, as they might go together: on the axis of the refusal
// (AxisOfError) what is not sharded becomes R or P, one operand or all of them, or all become I;
// the local shapes stay. Number `attempt`, from 0; nothing once there are no more.
std::optional<std::vector<LayoutType>> RelaxedTypes(const absl::Status& refusal,
                                                    absl::Span<const LayoutType> operands,
                                                    int attempt);

// Apply() to x, of which I, R, P and V are tried in turn on the step's axes until one is taken; x
// then has that type. What x is cut along stays.
absl::StatusOr<LayoutType> ApplyRelaxed(const Step& step, LayoutType& x);

// The type that a gradient of `value` must have.
LayoutType DualType(const LayoutType& value);

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_RELAXED_H_
