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
  return absl::OkStatus();
}

}  // namespace headwise
