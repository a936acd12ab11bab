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

const NewtonSchulzCoefficients& PolarExpress8() {
  // The published triples (a, b, c), but for the last as a / 1.01, b / 1.01^3, c / 1.01^5, in double,
  // rounded once.
  static const auto* const polar_express =
      new NewtonSchulzCoefficients{.name = "polar_express8",
                                   .steps = {{0x1.0690acp+3f, -0x1.6e6e54p+4f, 0x1.075f22p+4f},
                                             {0x1.043fd2p+2f, -0x1.6e3a4cp+1f, 0x1.096baap-1f},
                                             {0x1.f46d9cp+1f, -0x1.696396p+1f, 0x1.0cd1a6p-1f},
                                             {0x1.a48d5cp+1f, -0x1.35289ep+1f, 0x1.f0f0eep-2f},
                                             {0x1.23915ap+1f, -0x1.9eaca4p+0f, 0x1.980b58p-2f},
                                             {0x1.df611ep+0f, -0x1.3b0f7p+0f, 0x1.6f1edcp-2f},
                                             {0x1.db3f76p+0f, -0x1.3696dap+0f, 0x1.6d5cecp-2f},
                                             {0x1.ep+0f, -0x1.4p+0f, 0x1.8p-2f}},
                                   .restarts_after = {2, 5}};
  return *polar_express;
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
