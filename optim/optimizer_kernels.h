// OptimizerKernels: which implementation of the kernels an optimizer steps parameters with. The bits
// are the same, but for those of tensor cores (kernels/muon_step/cuda.h has their error bound).
//
//   auto optimizer = *Optimizer::Create(config, parameters);  // on the CPU
//   auto emulated = *Optimizer::Create(config, parameters, nullptr, EmulatedOptimizerKernels());
//
// The second is in optim/emulated_kernels.h. Both have the arguments, checks and aliases of
// kernels/muon_step/muon_step.h and kernels/adamw/adamw.h.
#ifndef HEADWISE_OPTIM_OPTIMIZER_KERNELS_H_
#define HEADWISE_OPTIM_OPTIMIZER_KERNELS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/adamw/adamw.h"
#include "kernels/common/thread_pool.h"
#include "kernels/muon_step/muon_step.h"
#include "optim/muon.h"

namespace headwise {

using AdamWStepFunction = void (*)(const AdamWHyperparameters& hyper, std::int64_t step,
                                   double gradient_scale, absl::Span<float> weight,
                                   absl::Span<float> m, absl::Span<float> v,
                                   absl::Span<const float> gradient, ThreadPool& pool);

struct OptimizerKernels {
  MuonStepFunction muon_step = &MuonStep<float>;
  // Takes the place of muon_step where MuonConfig.compute_mode is TENSOR_CORE; null: there is none.
  MuonStepFunction tensor_core_muon_step = nullptr;
  AdamWStepFunction adamw_step = &AdamWStep<float>;
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_OPTIMIZER_KERNELS_H_
