// What MuonStep and MuonStepReference share: what they refuse, and the constants of a step.
// Internal to this family.
#ifndef HEADWISE_KERNELS_MUON_STEP_ARGUMENTS_H_
#define HEADWISE_KERNELS_MUON_STEP_ARGUMENTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/muon_step/muon_step.h"

namespace headwise::muon_step {

// The errors that muon_step.h documents.
template <typename G>
absl::Status CheckArguments(const MuonHyperparameters& hyper,
                            absl::Span<const MuonWeight<G>> weights);

// The hyperparameters as the elements see them, each rounded once to fp32.
struct Constants {
  explicit Constants(const MuonHyperparameters& hyper)
      : beta(static_cast<float>(hyper.momentum)),
        one_minus_beta(1.0f - beta),
        decay(static_cast<float>(1.0 - hyper.learning_rate * hyper.weight_decay)),
        gradient_scale(static_cast<float>(hyper.gradient_scale)),
        nesterov(hyper.nesterov) {}

  float beta;
  float one_minus_beta;
  float decay;
  float gradient_scale;
  bool nesterov;
};

// learning_rate * scale of a block of rows x cols as it is stored, the product rounded once.
float StepSize(const MuonHyperparameters& hyper, bool transposed_storage, std::int64_t rows,
               std::int64_t cols);

}  // namespace headwise::muon_step

#endif  // HEADWISE_KERNELS_MUON_STEP_ARGUMENTS_H_
