// The CUDA kernels of all families, run on the CPU by kernels/emulation: arguments are host memory.
#ifndef HEADWISE_KERNELS_LAUNCHERS_EMULATED_H_
#define HEADWISE_KERNELS_LAUNCHERS_EMULATED_H_

#include "kernels/launchers/launchers.h"

namespace headwise {

const KernelLaunchers& EmulatedLaunchers();

}  // namespace headwise

#endif  // HEADWISE_KERNELS_LAUNCHERS_EMULATED_H_
