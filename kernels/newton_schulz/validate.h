// What NewtonSchulz and NewtonSchulzReference refuse, said once. Internal to this family.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_VALIDATE_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_VALIDATE_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/newton_schulz/newton_schulz.h"

namespace headwise::newton_schulz {

// The errors that newton_schulz.h documents.
absl::Status CheckArguments(const NewtonSchulzCoefficients& coefficients,
                            absl::Span<const NewtonSchulzProblem> problems);

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_VALIDATE_H_
