// The CUDA kernels of Muon and AdamW, run on the CPU by the emulation, as an optimizer's kernels.
//
//   auto optimizer = *Optimizer::Create(config, parameters, nullptr, EmulatedOptimizerKernels());
//
// For tests and for developing kernels: slower than the CPU's own, with their bits (but for Muon's
// on tensor cores, which are emulated too), and every access is checked. A finding of the emulation
// fails an HW_CHECK.
#ifndef HEADWISE_OPTIM_EMULATED_KERNELS_H_
#define HEADWISE_OPTIM_EMULATED_KERNELS_H_

#include "optim/optimizer_kernels.h"

namespace headwise {

OptimizerKernels EmulatedOptimizerKernels();

}  // namespace headwise

#endif  // HEADWISE_OPTIM_EMULATED_KERNELS_H_
