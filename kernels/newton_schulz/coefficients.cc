#include "kernels/newton_schulz/coefficients.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace headwise {

const NewtonSchulzCoefficients& Quintic5() {
  static const auto* const quintic = new NewtonSchulzCoefficients{
      .name = "quintic5",
      .steps = std::vector<QuinticStep>(5, {3.4445f, -4.7750f, 2.0315f}),
      .restarts_after = {}};
  return *quintic;
}

absl::Status CheckCoefficients(const NewtonSchulzCoefficients& coefficients) {
  const auto error = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("Newton-Schulz coefficients '", coefficients.name, "': ", what...));
  };
  const int steps = static_cast<int>(coefficients.steps.size());
  if (steps == 0) return error("found no step, expected at least one");
  for (int i = 0; i < steps; ++i) {
    const QuinticStep& step = coefficients.steps[i];
    if (!std::isfinite(step.a) || !std::isfinite(step.b) || !std::isfinite(step.c)) {
      return error("step ", i + 1, " is not finite");
    }
  }
  int previous = 0;
  for (const int after : coefficients.restarts_after) {
    if (after <= previous || after >= steps) {
      return error("found a restart after step ", after,
                   ", expected ascending step numbers from 1 to ", steps - 1);
    }
    previous = after;
  }
  return absl::OkStatus();
}

}  // namespace headwise
