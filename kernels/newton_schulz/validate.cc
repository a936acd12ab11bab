#include "kernels/newton_schulz/validate.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "kernels/common/float_environment.h"
#include "kernels/common/memory_overlap.h"
#include "kernels/newton_schulz/matrix_checks.h"

namespace headwise::newton_schulz {
namespace {

absl::Status CheckProblem(const NewtonSchulzProblem& problem) {
  const RowSpan<const float>& in = problem.input;
  const RowSpan<float>& out = problem.output;
  HW_RETURN_IF_ERROR(CheckSpan("its input", in.data, in.rows, in.width, in.stride));
  HW_RETURN_IF_ERROR(CheckSpan("its output", out.data, out.rows, out.width, out.stride));
  if (in.rows != out.rows || in.width != out.width) {
    return absl::InvalidArgumentError(absl::StrCat("its input is [", in.rows, ", ", in.width,
                                                   "] but its output is [", out.rows, ", ",
                                                   out.width, "]"));
  }
  HW_RETURN_IF_ERROR(CheckBlocks(problem.blocks, in.rows, in.width));
  const bool in_place = in.data == out.data && (in.stride == out.stride || in.rows == 1);
  if (!in_place && Overlap(in, out)) {
    return absl::InvalidArgumentError(
        "its output overlaps its input without being the same matrix");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckArguments(const NewtonSchulzCoefficients& coefficients,
                            absl::Span<const NewtonSchulzProblem> problems) {
  HW_RETURN_IF_ERROR(CheckFloatEnvironment());
  HW_RETURN_IF_ERROR(CheckCoefficients(coefficients));
  for (std::size_t i = 0; i < problems.size(); ++i) {
    if (const absl::Status s = CheckProblem(problems[i]); !s.ok()) {
      return absl::Status(s.code(), absl::StrCat("Newton-Schulz problem ", i, ": ", s.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace headwise::newton_schulz
