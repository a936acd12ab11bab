#include "kernels/common/float_environment.h"

#include <cfenv>
#include <limits>

#include "absl/status/status.h"

namespace headwise {

absl::Status CheckFloatEnvironment() {
  if (std::fegetround() != FE_TONEAREST) {
    return absl::FailedPreconditionError(
        "floating-point rounding mode of this thread: found another than round-to-nearest, which "
        "the kernels' bits need; restore it with std::fesetround(FE_TONEAREST)");
  }
  // Asked of the arithmetic itself, so that it holds on every architecture.
  volatile float subnormal = std::numeric_limits<float>::denorm_min();
  volatile float smallest_normal = std::numeric_limits<float>::min();
  const float read = subnormal * 0x1p100f;       // 0 if subnormal inputs count as zero
  const float written = smallest_normal * 0.5f;  // 0 if subnormal results are flushed
  if (read == 0.0f || written == 0.0f) {
    return absl::FailedPreconditionError(
        "subnormal numbers of this thread: found flushed to zero (FTZ or DAZ is set in MXCSR), "
        "expected kept; clear both bits, or load no library linked with -ffast-math");
  }
  // x^2 rounds to 1 + 2^-11; the exact square is 2^-24 more, which an fma would keep.
  volatile float x = 0x1.001p0f;
  volatile float minus_rounded_square = -0x1.002p0f;
  const float factor = x;
  const float term = minus_rounded_square;
  if (factor * factor + term != 0.0f) {
    return absl::FailedPreconditionError(
        "this program's compiler flags: found a*b+c contracted to an fma, which changes bits; add "
        "what headwise.bazelrc has to the .bazelrc: build --copt=-ffp-contract=off");
  }
  return absl::OkStatus();
}

}  // namespace headwise
