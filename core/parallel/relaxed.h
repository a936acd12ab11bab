// Types as if they had fitted: for tests that run a layout that the checker refuses, to see that it
// is wrong (LayoutChecker::set_relaxed). What comes of it proves nothing.
#ifndef HEADWISE_CORE_PARALLEL_RELAXED_H_
#define HEADWISE_CORE_PARALLEL_RELAXED_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/parallel/layout_type.h"
#include "core/parallel/step.h"

namespace headwise {

// On the axis of a refusal (AxisOfError): I, P and V become R, which has the same local shape. True
// if something changed.
bool RelaxTypes(const absl::Status& refusal, absl::Span<LayoutType> operands);

// Apply() to x, of which I, R, P and V are tried in turn on the step's axes until one is taken; x
// then has that type. What x is cut along stays.
absl::StatusOr<LayoutType> ApplyRelaxed(const Step& step, LayoutType& x);

// The type that a gradient of `value` must have.
LayoutType DualType(const LayoutType& value);

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_RELAXED_H_
