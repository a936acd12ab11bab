// StepReport: what an optimizer says of a step.
#ifndef HEADWISE_OPTIM_STEP_REPORT_H_
#define HEADWISE_OPTIM_STEP_REPORT_H_

#include <string>

#include "absl/status/status.h"

namespace headwise {

struct StepReport {
  // Of all parameters, before clipping; infinite or NaN only if a gradient is.
  double gradient_norm = 0;
  double schedule = 0;     // the factor that multiplied the learning rates
  double clip_factor = 1;  // what multiplied the clipped gradients
  bool skipped = false;    // a gradient was not finite or >= 2^96: no state changed
  std::string non_finite;  // then: the first such parameter, by name
  // Not OK on several ranks only: they could not talk, or replicas have come apart (kDataLoss). What
  // has been written is then not known, and the run is over.
  absl::Status status;
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_STEP_REPORT_H_
