// Errors of rules and conversions: one line that says the op, the mesh axis, the operands with
// their types, and why it cannot be.
//
//   linear: axis tp: x F32[T=64, K=32] tp:I with weight F32[N=8, K=32] tp:S(N): I is one
//   computation that all ranks repeat ...
//
// They are absl::Status kFailedPrecondition; what they were made of travels with it for tools.
#ifndef HEADWISE_CORE_PARALLEL_LAYOUT_ERROR_H_
#define HEADWISE_CORE_PARALLEL_LAYOUT_ERROR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/parallel/layout_type.h"

namespace headwise {

// An argument of a rule, under the name that messages call it. Not owned: for calls only.
struct Operand {
  absl::string_view name;
  const LayoutType& type;
};

// `axis` may be empty: then the error is about no axis in particular.
absl::Status LayoutError(absl::string_view op, absl::string_view axis,
                         absl::Span<const Operand> operands, absl::string_view why);

// The same error behind "prefix: ", with what it was made of.
absl::Status Annotate(const absl::Status& status, absl::string_view prefix);

// What LayoutError was told; empty for other errors. An operand is its name and type, "x F32[...]".
std::string OpOfError(const absl::Status& status);
std::string AxisOfError(const absl::Status& status);
std::vector<std::string> OperandsOfError(const absl::Status& status);
std::string WhyOfError(const absl::Status& status);

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_LAYOUT_ERROR_H_
